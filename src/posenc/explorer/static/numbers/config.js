// A pasted configuration: the common forms of a rope block, of families whose code does nothing unusual. `forms` comes from
// posenc.hf (posenc.explorer.models.forms). Whatever is not plainly right is left to posenc itself: `judged` is then false, and a
// finding says why.
const {NotPlain, refuse, shownValue, isObject, count, SCALED_FROM, valuesOf, checked, scalingsOf} = numbers.block;

const textPart = whole => {
  let inner = whole;
  const types = [whole.model_type];
  for (;;) {
    const name = ["vlm_config", "text_config", "llm_config", "language_config", "thinker_config"].find(
      key => isObject(inner[key]) && Object.keys(inner[key]).length,
    );
    if (name === undefined) return {config: inner, types: types.filter(Boolean)};
    inner = inner[name];
    types.unshift(inner.model_type);
  }
};

const familyOf = (types, forms) => {
  if (types.length === 0) return forms.llama;
  const name = [types[0], `${types[0]}_text`].find(one => one in forms.families);
  return name === undefined
    ? refuse("model_type", `${shownValue(types[0])} is not a family that this page supports`)
    : forms.families[name];
};

const rotationOf = (config, block, family, forms, silent, findings) => {
  const found = valuesOf(config, block, forms),
    longest = config.max_position_embeddings ?? config.n_positions;
  if (longest !== undefined && !count(longest)) refuse("max_position_embeddings", `cannot be ${shownValue(longest)}`);
  const v = {
    rope_theta: family.base,
    ...(family.share === 1 ? {} : {partial_rotary_factor: family.share}),
    ...silent,
    ...found,
  };
  if ("rotary_dim" in found && !("partial_rotary_factor" in found)) delete v.partial_rotary_factor;
  const type = checked(v, forms);
  if (family.ropeTypes.length && !family.ropeTypes.includes(type))
    refuse("rope_type", `is ${shownValue(type)}, which this family's config class refuses; it takes ${family.ropeTypes.join(", ")}`);
  for (const key of forms.types[type].required)
    if (!(key in v)) refuse(key, `is missing, which rope type ${type} needs`);
  if (SCALED_FROM.includes(type) && v.original_max_position_embeddings === undefined) {
    v.original_max_position_embeddings = family.original ?? longest;
    findings.push({
      level: "suspicion",
      key: "original_max_position_embeddings",
      text: `is not given: ${v.original_max_position_embeddings} is taken for the training length`,
    });
  }
  if (!("rope_theta" in found))
    findings.push({level: "note", key: "rope_theta", text: `is not given: ${v.rope_theta} is the default`});
  const heads = config.num_attention_heads ?? config.n_head;
  const own = "head_dim" in config ? config.head_dim : family.head_dim;
  const dim = own ?? (config.hidden_size ?? config.n_embd) / heads;
  if (!count(dim) || dim % 2) refuse("head_dim", "must be even: give head_dim, or hidden_size and num_attention_heads");
  const rotaryDim = type === "proportional" ? dim : (v.rotary_dim ?? Math.trunc(dim * (v.partial_rotary_factor ?? 1)));
  if (rotaryDim < 2 || rotaryDim % 2 || rotaryDim > dim)
    refuse("partial_rotary_factor", `would rotate ${rotaryDim} of ${dim} channels`);
  const wrong = ["short_factor", "long_factor"].find(key => key in v && v[key].length !== rotaryDim / 2);
  if (wrong) refuse(wrong, `must have ${rotaryDim / 2} numbers, one for each pair`);
  const scalings = scalingsOf(type, v, longest),
    original = scalings.find(s => s.original_length)?.original_length;
  const factor = scalings.find(s => s.factor)?.factor ?? 1,
    trained = original ?? longest ?? null;
  if (
    (type === "yarn" || type === "longrope") &&
    longest &&
    longest !== original &&
    Math.abs(longest / original - factor) > 1e-6 * factor
  ) {
    findings.push({
      level: "suspicion",
      key: "factor",
      text: `is ${factor}, but max_position_embeddings / original length = ${longest / original}`,
    });
  }
  if (type === "dynamic" || type === "longrope")
    findings.push({level: "suspicion", key: "rope_type", text: `${type}: frequencies depend on the sequence length`});
  const reach = original && !(type === "llama3" && longest > original) ? Math.round(original * factor) : 0;
  return {
    layout: family.layout,
    dim,
    rotaryDim,
    base: v.rope_theta,
    scalings,
    trained,
    longest: Math.max(reach, longest ?? 0) || trained,
  };
};

// The kind of each layer; null where a configuration alone does not say.
const layersOf = (config, family) => {
  const layers = config.num_hidden_layers ?? config.n_layer;
  if (Array.isArray(config.layer_types)) return config.layer_types.map(String);
  return family.uniform && count(layers) && layers <= 16384 ? Array(layers).fill("full_attention") : null;
};

const read = (whole, forms, findings) => {
  if (!isObject(whole)) refuse("configuration", "must be a JSON object");
  const {config, types} = textPart(whole),
    family = familyOf(types, forms);
  const strange = forms.strange.find(key => config[key] != null && config[key] !== false);
  if (strange) refuse(strange, "changes what layers do in ways that this page does not read");
  const blocks = ["rope_parameters", "rope_scaling"].map(key => config[key]).filter(block => block != null);
  if (
    blocks.some(block => !isObject(block)) ||
    (blocks.length === 2 && JSON.stringify(blocks[0]) !== JSON.stringify(blocks[1]))
  ) {
    refuse("rope_scaling", "must be one object, and what rope_parameters says");
  }
  if (types.length === 0) {
    if (!blocks.length && !("rope_theta" in config))
      refuse("rope_parameters", "and model_type are missing: nothing here speaks of a rotation");
    findings.push({level: "suspicion", key: "model_type", text: "is not given: read as a Llama"});
  }
  const block = blocks[0] ?? {},
    empty = Object.keys(block).length === 0;
  const nested = Object.entries(block).filter(([, value]) => isObject(value)),
    layers = layersOf(config, family);
  if (nested.length && nested.length < Object.keys(block).length) refuse("rope_parameters", "mixes blocks and values");
  const parts = nested.length ? nested : [["all", block]];
  const kinds = Object.fromEntries(
    parts.map(([kind, one]) => [kind, rotationOf(config, one, family, forms, empty ? family.block : {}, findings)]),
  );
  if (layers === null)
    findings.push({
      level: "note",
      key: "layer_types",
      text: "are not given, and this family's code orders its layers by itself",
    });
  return {kinds, layers, window: config.sliding_window ?? null};
};

numbers.readConfig = (whole, forms) => {
  const findings = [];
  const more = `this page reads the common forms only: run ${forms.command} on the file`;
  try {
    const found = read(whole, forms, findings);
    findings.push({
      level: "note",
      key: "limits",
      text: `windows, temperatures, sinks and special cases of model families are not checked here; ${more}`,
    });
    return {judged: true, ...found, findings};
  } catch (error) {
    if (!(error instanceof NotPlain)) throw error;
    return {
      judged: false,
      kinds: {},
      layers: null,
      window: null,
      findings: [{level: "fault", key: error.key, text: `${error.message}; ${more}`}],
    };
  }
};
