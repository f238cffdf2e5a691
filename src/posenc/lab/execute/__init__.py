"""Jobs mapped over an executor of the concurrent.futures kind: processes of this machine, SLURM, Ray, or one's own.

Which one was chosen never changes what is computed in a job. An executor is anything with ``submit(bring_work, work)``
that returns something with ``done()`` and ``exception()``, and with ``shutdown()`` and ``stop()``; see `Executor`.
"""
