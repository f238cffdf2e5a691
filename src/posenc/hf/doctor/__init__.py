"""Finds and corrects mistakes in the positions of a checkpoint, a live model, a GGUF file or a configuration.

    report = examine("my-model")             # or a model of transformers, a file.gguf, a config.json, a dictionary
    print(report)                            # each finding: name, what is wrong, its cost, the keys to write
    fix("my-model", "my-model-fixed")        # a copy with the corrected configuration
    print(compare("my-model", "my-merge"))   # what differs between two in their positions

examine       reads a source, chooses the checks, and lists what was not checked
weights       files damaged, truncated, missing; NaN and saved frequencies
tensors       what transformers' loader says of a folder's tensors, and what it drops in silence;  loader asks it
side_files    limits of tokenizer, generation and sentence-transformers, and other programs' files
model_checks  a live model, its modules and its loss
compare       two checkpoints or configurations
pairs         a draft and its target, a trainer and an engine
corrections   the keys that resolve a finding;  fixing: writes them, to a copy or beside a backup
report        the findings of one source
"""

from posenc.hf.doctor.compare import Comparison as Comparison
from posenc.hf.doctor.compare import Difference as Difference
from posenc.hf.doctor.compare import compare as compare
from posenc.hf.doctor.examine import examine as examine
from posenc.hf.doctor.fixing import corrected as corrected
from posenc.hf.doctor.fixing import fix as fix
from posenc.hf.doctor.report import Report as Report
from posenc.hf.findings import Finding as Finding
