"""posenc cost: time, memory and parameters of encodings, measured side by side."""

from posenc.lab.cost.measure import measure_costs as measure_costs
from posenc.lab.cost.results import Costs as Costs
from posenc.lab.cost.store import read_cost as read_cost
from posenc.lab.cost.store import write_cost as write_cost
