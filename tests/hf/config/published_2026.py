"""Ten models published in 2026, chosen by name before any of them was read here."""

from __future__ import annotations

NAMES = [
    "zai-org/GLM-5.3",
    "Qwen/Qwen4-Exp",
    "inclusionAI/Ling-3.0-flash",
    "allenai/Olmo-Hybrid-7B",
    "tencent/Hy4-preview",
    "IQuestLab/IQuest-Coder-V1-40B-Instruct",
    "stepfun-ai/Step-3.7-Flash",
    "LiquidAI/LFM3-1.7B",
    "JetBrains/Mellum2-12B-A2.5B-Base",
    "mistralai/Mistral-Large-4-1T-A52B",
]
