// Compare a reader of RoPE settings with rope-v1.json; needs the crate serde_json, as in Cargo.toml.
// Replace `frequencies` by your own; here it knows rope type "default" of Llama alone.
use serde_json::Value;

fn frequencies(config: &Value) -> Vec<f64> {
    let block = if config["rope_parameters"].is_object() { &config["rope_parameters"] } else { config };
    let (base, width) = (block["rope_theta"].as_f64().unwrap(), config["head_dim"].as_i64().unwrap());
    (0..width / 2).map(|j| base.powf(-2.0 * j as f64 / width as f64)).collect()
}

fn main() {
    let text = std::fs::read_to_string("rope-v1.json").unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let (mut compared, mut off) = (0, 0);
    for case in file["cases"].as_array().unwrap() {
        if !case["name"].as_str().unwrap().starts_with("llama/default/") {
            continue;
        }
        let (right, theta) = (&case["kinds"]["all"], frequencies(&case["config"]));
        for (own, told) in theta.iter().zip(right["inv_freq"].as_array().unwrap()) {
            off += ((own / told.as_f64().unwrap() - 1.0).abs() > 1e-6) as i32;
        }
        for (row, position) in case["positions"].as_array().unwrap().iter().enumerate() {
            for (k, pair) in right["pairs"].as_array().unwrap().iter().enumerate() {
                let angle = position.as_f64().unwrap() * theta[pair.as_i64().unwrap() as usize];
                let told = right["cos"][row][k].as_f64().unwrap();
                off += ((told - right["gain"].as_f64().unwrap() * angle.cos()).abs() > 1e-9) as i32;
            }
        }
        compared += 1;
    }
    println!("{compared} cases compared, {off} numbers off");
    std::process::exit((off != 0 || compared == 0) as i32);
}
