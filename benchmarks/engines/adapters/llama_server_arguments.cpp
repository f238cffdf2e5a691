// The context parameters that llama-server makes of its command line, as JSON: llama.cpp's own parser, and nothing else.
//
// Built against the sources that llama_cpp_python's source distribution vendors, from the folder vendor/llama.cpp:
//     cmake -B build -DLLAMA_CURL=OFF && cmake --build build --target llama-common
//     g++ -std=c++17 -I common -I include -I ggml/include llama_server_arguments.cpp -o llama-server-arguments
//         -L build/bin -lllama-common -lllama -lggml -lggml-base -lcpp-httplib
// tools/server/server.cpp parses its arguments by this call and hands them on by common_context_params_to_llama.
#include "arg.h"
#include "common.h"

#include <cstdio>

int main(int argc, char ** argv) {
    common_params params;
    if (!common_params_parse(argc, argv, params, LLAMA_EXAMPLE_SERVER)) {
        return 1;
    }
    const llama_context_params context = common_context_params_to_llama(params);
    std::printf(
        "{\"model\": \"%s\", \"n_ctx\": %u, \"rope_scaling_type\": %d, \"rope_freq_base\": %.9g, \"rope_freq_scale\": %.9g, "
        "\"yarn_ext_factor\": %.9g, \"yarn_attn_factor\": %.9g, \"yarn_beta_fast\": %.9g, \"yarn_beta_slow\": %.9g, "
        "\"yarn_orig_ctx\": %u, \"overrides\": %zu}\n",
        params.model.path.c_str(), context.n_ctx, (int) context.rope_scaling_type, context.rope_freq_base,
        context.rope_freq_scale, context.yarn_ext_factor, context.yarn_attn_factor, context.yarn_beta_fast,
        context.yarn_beta_slow, context.yarn_orig_ctx, params.kv_overrides.empty() ? 0 : params.kv_overrides.size() - 1);
    return 0;
}
