"""What a longer context needs in the config: type, factor and original length, or a refusal with the next step.

plan         plan_extension(), the one plan that extend, recommend and serve print
documented   recipes of models' authors, with sources
"""
