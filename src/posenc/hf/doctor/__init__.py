"""What is wrong with the positions of a checkpoint, a live model, a GGUF file or a configuration, and its correction.

    report = examine("my-model")             # or a model of transformers, a file.gguf, a config.json, a dictionary
    print(report)                            # each finding: name, what it is, what it costs, the block to paste
    fix("my-model", "my-model-fixed")        # a copy with the corrected configuration

report       what a finding is, and what it cost where it was measured;  corrections: the keys that repair it
file_checks  what a configuration and the files beside it show
live_checks  what only a live model shows;  loss_checks: its loss on a text
examine      which checks run;  fixing: writes corrections, to a copy or beside a backup
"""

from posenc.hf.doctor.examine import examine as examine
from posenc.hf.doctor.fixing import corrected as corrected
from posenc.hf.doctor.fixing import fix as fix
from posenc.hf.doctor.report import Report as Report
from posenc.hf.findings import Finding as Finding
