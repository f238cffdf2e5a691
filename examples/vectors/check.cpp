// Compare a reader of RoPE settings with rope-v1.json: g++ -O2 -std=c++17 check.cpp -o check && ./check
// Needs nlohmann/json (one header). Replace `frequencies` by your own; here it knows rope type "default" of Llama alone.
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
using json = nlohmann::json;

std::vector<double> frequencies(const json& config) {
    const double base = config.contains("rope_parameters") ? config["rope_parameters"]["rope_theta"] : config["rope_theta"];
    const int width = config["head_dim"];
    std::vector<double> theta(width / 2);
    for (int j = 0; j < width / 2; ++j) theta[j] = std::pow(base, -2.0 * j / width);
    return theta;
}

int main() {
    int compared = 0, off = 0;
    const json file = json::parse(std::ifstream("rope-v1.json"));
    for (const auto& item : file["cases"]) {
        if (item["name"].get<std::string>().rfind("llama/default/", 0) != 0) continue;
        const auto& right = item["kinds"]["all"];
        const auto theta = frequencies(item["config"]);
        for (size_t j = 0; j < theta.size(); ++j) off += std::abs(theta[j] / right["inv_freq"][j].get<double>() - 1) > 1e-6;
        for (size_t row = 0; row < item["positions"].size(); ++row)
            for (size_t k = 0; k < right["pairs"].size(); ++k) {
                const double angle = item["positions"][row].get<double>() * theta[right["pairs"][k].get<int>()];
                off += std::abs(right["cos"][row][k].get<double>() - right["gain"].get<double>() * std::cos(angle)) > 1e-9;
            }
        ++compared;
    }
    std::cout << compared << " cases compared, " << off << " numbers off\n";
    return off != 0 || compared == 0;
}
