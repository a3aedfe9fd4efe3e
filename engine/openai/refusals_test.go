package openai

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// Expected results of refusals, by class.
var (
	waits    = engine.Error{Class: engine.Busy}
	crowded  = engine.Error{Class: engine.Busy, Overloaded: true}
	filtered = engine.Error{Class: engine.RowFault, Code: rowmill.RowContentFiltered}
	fails    = engine.Error{Class: engine.RowFault}
	retried  = engine.Error{Class: engine.Transient}
	hopeless = engine.Error{Class: engine.JobFault}
)

// tooLong returns the refusal of a prompt with these numbers of tokens in the prompt
// and in the context; 0 if the server does not report a number.
func tooLong(prompt, context int) engine.Error {
	return engine.Error{Class: engine.RowFault, Code: rowmill.RowTooLong, TooLong: true, Prompt: prompt, Context: context}
}

// A saying is a refusal of a server and its public source: a repository with an issue
// number or a path, or a page.
type saying struct {
	source string
	status int
	body   string
	want   engine.Error
}

// openAIError returns an error body in OpenAI's format.
func openAIError(message, kind, code string) string {
	return `{"error":{"message":"` + message + `","type":"` + kind + `","code":"` + code + `"}}`
}

// sayings are refusals by kind of problem.
var sayings = map[string][]saying{
	// A busy server, a server without credit, or a missing server costs a row no
	// attempt.
	"the server's state": {
		{"the case rate-limit-retry-after", 429, openAIError("Rate limit reached for requests", "requests", "rate_limit_exceeded"), crowded},
		{"continuedev/continue 11472", 429, openAIError("Rate limit reached for gpt-4.1 on tokens per min (TPM): Limit 30000, Used 18928, Requested 11159. Please try again in 174ms.", "tokens", "rate_limit_exceeded"), crowded},
		{"openai/openai-python: code insufficient_quota", 429, openAIError("You exceeded your current quota, please check your plan and billing details.", "insufficient_quota", "insufficient_quota"), waits},
		{"langgenius/dify, boards of OpenAI: billing_hard_limit_reached", 400, openAIError("Billing hard limit has been reached", "invalid_request_error", "billing_hard_limit_reached"), waits},
		{"page Error Codes of api-docs.deepseek.com", 402, openAIError("Insufficient Balance", "unknown_error", "invalid_request_error"), waits},
		{"page Error Codes of api-docs.deepseek.com", 503, `{"error":{"message":"Server Overloaded"}}`, crowded},
		{"page errors of platform.moonshot.cn", 429, openAIError("Your account is suspended due to insufficient balance, please recharge your account", "exceeded_current_quota_error", ""), waits},
		{"page Errors of platform.claude.com", 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, crowded},
		{"page invalid_request_error (spend limit reached) of developersdigest.tech", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-09-01 at 00:00 UTC."}}`, waits},
		{"portkey.ai, error library of Anthropic: credit balance", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API."}}`, waits},
		{"xAI, as its clients test for it: used all available credits", 403, `{"code":"permission-denied","error":"Your team has either used all available credits or reached its monthly spending limit."}`, waits},
		{"Cloudgeni-ai/opengeni 1643", 200, `{"error":{"message":"The model is currently at capacity due to high demand."}}`, crowded},
		{"page Errors of openrouter.ai", 402, `{"error":{"code":402,"message":"Insufficient credits"}}`, waits},
		{"page flex-processing of console.groq.com", 498, openAIError("capacity exceeded", "", "capacity_exceeded"), crowded},
		{"infiniflow/ragflow 9858", 503, openAIError("llama-3.3-70b-versatile is currently over capacity. Please try again and back off exponentially.", "internal_server_error", ""), crowded},
		{"google-gemini/gemini-cli 23520", 503, `{"error":{"code":503,"message":"No capacity available for model on the server","status":"UNAVAILABLE"}}`, crowded},
		{"traycerai/traycer 917, SGLang behind a gateway", 200, `{"error":{"message":"Streaming response failed: [503] The request queue is full.","type":"server_error"}}`, crowded},
		{"sgl-project/sglang 25811", 503, openAIError("No available workers (all circuits open or unhealthy)", "", "no_available_workers"), crowded},
		{"tenstorrent/tt-inference-server 863", 500, `{"detail":"Task queue is full"}`, crowded},
		{"huggingface/text-generation-inference router/src/infer/mod.rs", 429, `{"error":"Model is overloaded","error_type":"overloaded"}`, crowded},
		{"huggingface/text-embeddings-inference router/src/http/server.rs", 429, `{"message":"Model is overloaded","code":429,"type":"overloaded"}`, crowded},
		{"michaelfeil/infinity libs/infinity_emb/infinity_emb/infinity_server.py", 429, openAIError("model m is currently overloaded", "", ""), crowded},
		{"ollama/ollama server/sched.go", 503, openAIError("server busy, please try again.  maximum pending requests exceeded", "api_error", ""), crowded},
		{"LostRuins/koboldcpp koboldcpp.py", 503, `{"detail":{"msg":"Server is busy; please try again later.","type":"service_unavailable"}}`, crowded},
		{"ggml-org/llama.cpp tools/server: unavailable_error", 503, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, crowded},
		{"mudler/LocalAI core/http/app.go", 503, openAIError("model m is still loading", "model_loading", "model_loading"), crowded},
		{"huggingface/unity-api 18", 503, `{"error":"Model m is currently loading","estimated_time":20.0}`, crowded},
		{"BerriAI/litellm 1242", 200, `{"error":{"message":"Model m is currently loading"}}`, waits},
		{"pytorch/serve 2993, KServe", 503, `{"error":"Model with name m is not ready."}`, crowded},
		{"Envoy, which answers in plain text", 503, `no healthy upstream`, crowded},
		{"BerriAI/litellm litellm/litellm_core_utils/exception_mapping_utils.py, Mistral", 429, `{"object":"error","message":"Service tier capacity exceeded for this model.","type":"invalid_request_error","code":"3505"}`, crowded},
		{"Bedrock: ThrottlingException", 429, `{"message":"Too many tokens, please wait before trying again."}`, crowded},
		{"OpenAI: code billing_not_active", 429, openAIError("Your account is not active, please check your billing details on our website.", "billing_not_active", "billing_not_active"), waits},
	},
	// A prompt that is too long is truncated, with the numbers of the refusal if it has
	// them.
	"a prompt that is too long": {
		{"the case too-long-kills-job", 400, openAIError("Input tokens exceed the configured limit of 512 tokens. Your messages resulted in 3000 tokens. Please reduce the length of the messages.", "invalid_request_error", "context_length_exceeded"), tooLong(3000, 512)},
		{"the case too-long-kills-job", 400, openAIError("Your input exceeds the context window of this model. Please adjust your input and try again.", "invalid_request_error", "context_length_exceeded"), tooLong(0, 0)},
		{"Aider-AI/aider 1880", 429, openAIError("Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested 36278. The input or output tokens must be reduced in order to run successfully.", "tokens", "rate_limit_exceeded"), tooLong(36278, 30000)},
		{"musistudio/claude-code-router 233, Groq", 413, openAIError("Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 20719, please reduce your message size and try again.", "tokens", "rate_limit_exceeded"), tooLong(20719, 6000)},
		{"vllm-project/vllm vllm/renderers/params.py", 400, openAIError("You passed 9000 input tokens and requested 16 output tokens. However, the model's context length is only 8192 tokens, resulting in a maximum input length of 8176 tokens. Please reduce the length of the input prompt.", "BadRequestError", "400"), tooLong(9000, 8192)},
		{"vllm-project/vllm vllm/renderers/params.py", 400, openAIError("You passed 900000 input characters and requested 16 output tokens. However, the model's context length is only 8192 tokens, resulting in a maximum input length of 8176 tokens (at most 81760 characters). Please reduce the length of the input prompt.", "BadRequestError", "400"), tooLong(0, 8192)},
		{"vllm-project/vllm 36789", 400, openAIError("Input length (11680) exceeds model's maximum context length (4096).", "BadRequestError", "400"), tooLong(11680, 4096)},
		{"vllm-project/vllm 36789, before it", 400, openAIError("max_tokens must be at least 1, got -7584. (parameter=max_tokens, value=-7584)", "BadRequestError", "400"), tooLong(0, 0)},
		{"vllm-project/vllm 20409", 400, openAIError("This model's maximum context length is 16384 tokens. However, you requested 122946 tokens (112946 in the messages, 10000 in the completion). Please reduce the length of the messages or completion.", "BadRequestError", "400"), tooLong(122946, 16384)},
		{"vllm-project/vllm 19798", 400, openAIError("This model's maximum context length is 512 tokens. However, you requested 1451 tokens in the input for embedding generation. Please reduce the length of the input.", "BadRequestError", "400"), tooLong(1451, 512)},
		{"ray-project/ray 59194", 400, openAIError("The decoder prompt (length 30632) is longer than the maximum model length of 30000. Make sure that `max_model_len` is no smaller than the number of text tokens.", "BadRequestError", "400"), tooLong(30632, 30000)},
		{"vllm-project/vllm 12165", 400, openAIError("The prompt (total length 25938) is too long to fit into the model (context length 4096).", "BadRequestError", "400"), tooLong(25938, 4096)},
		{"QwenLM/Qwen3 1321, SGLang", 400, `{"object":"error","message":"The input (61709 tokens) is longer than the model's context length (40960 tokens).","type":"BadRequestError","param":null,"code":400}`, tooLong(61709, 40960)},
		{"sgl-project/sglang: Requested token count", 400, `{"object":"error","message":"Requested token count exceeds the model's maximum context length of 131072 tokens. You requested a total of 140000 tokens.","type":"BadRequestError"}`, tooLong(0, 131072)},
		{"ggml-org/llama.cpp 15780", 400, `{"error":{"code":400,"message":"request (25837 tokens) exceeds the available context size (25088 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":25837,"n_ctx":25088}}`, tooLong(25837, 25088)},
		{"ggml-org/llama.cpp 12295", 500, `{"error":{"code":500,"message":"input is too large to process. increase the physical batch size","type":"server_error"}}`, tooLong(0, 0)},
		{"gpustack/gpustack 1357, llama-box", 500, `{"error":{"message":"input prompt is too big compared to KV size, please increase KV size"}}`, tooLong(0, 0)},
		{"abetlen/llama-cpp-python llama_cpp/server/errors.py", 400, openAIError("This model's maximum context length is 2048 tokens. However, you requested 10020 tokens (10015 in the messages, 5 in the completion).", "invalid_request_error", "context_length_exceeded"), tooLong(10020, 2048)},
		{"theroyallab/tabbyAPI common/errors.py", 400, openAIError("Prompt length 9000 exceeds the available context size of 8192 tokens", "invalid_request_error", "context_length_exceeded"), tooLong(0, 8192)},
		{"InternLM/lmdeploy lmdeploy/serve/core/async_engine.py", 400, openAIError("Input length (9000) must be smaller than the model context length (8192).", "invalid_request_error", "context_length_exceeded"), tooLong(9000, 8192)},
		{"ollama/ollama llm/llama_server.go", 400, openAIError("the input length exceeds the context length", "invalid_request_error", ""), tooLong(0, 0)},
		{"Gitlawb/openclaude 353, LM Studio", 400, `{"error":"The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context length, or provide a shorter input."}`, tooLong(13055, 4096)},
		{"lmstudio-ai/lmstudio-bug-tracker 546", 400, `{"error":"Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context length of only 32768 tokens, which is not enough."}`, tooLong(0, 32768)},
		{"huggingface/llm-vscode 94, TGI", 422, "{\"error\":\"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3474 `inputs` tokens and 60 `max_new_tokens`\",\"error_type\":\"validation\"}", tooLong(3474, 2048)},
		{"huggingface/text-embeddings-inference core/src/tokenization.rs", 422, "{\"message\":\"`inputs` must have less than 512 tokens. Given: 1041\",\"code\":422,\"type\":\"validation\"}", tooLong(1041, 512)},
		{"huggingface/text-embeddings-inference core/src/tokenization.rs", 422, "{\"message\":\"`inputs` must have less than 25600 characters. Given: 90000\",\"code\":422,\"type\":\"validation\"}", tooLong(0, 0)},
		{"NVIDIA/TensorRT-LLM tests: should not exceed max_num_tokens", 400, `{"object":"error","message":"The sum of prompt length (72417.0), query length (0) should not exceed max_num_tokens (69632)","type":"BadRequestError","param":null,"code":400}`, tooLong(72417, 69632)},
		{"triton-inference-server/tensorrtllm_backend 565", 500, `{"error":"Encountered an error when fetching new request: Prompt length (200) exceeds maximum input length (100)"}`, tooLong(200, 100)},
		{"badlogic/pi-mono packages/ai/src/utils/overflow.ts, Anthropic", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 213462 tokens > 200000 maximum"}}`, tooLong(213462, 200000)},
		{"kortix-ai/suna 172, Anthropic", 400, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"input length and `max_tokens` exceed context limit: 174167 + 64000 > 200000, decrease input length or `max_tokens` and try again\"}}", tooLong(0, 0)},
		{"aws-samples/bedrock-chat 95", 400, `{"message":"Input is too long for requested model."}`, tooLong(0, 0)},
		{"badlogic/pi-mono packages/ai/src/utils/overflow.ts, Gemini", 400, `{"error":{"code":400,"message":"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).","status":"INVALID_ARGUMENT"}}`, tooLong(1196265, 1048575)},
		{"badlogic/pi-mono packages/ai/src/utils/overflow.ts, xAI", 400, `{"code":"invalid-argument","error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}`, tooLong(537812, 131072)},
		{"badlogic/pi-mono packages/ai/src/utils/overflow.ts, Mistral", 400, `{"object":"error","message":"Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_error","code":"3051"}`, tooLong(65673, 32768)},
		{"badlogic/pi-mono packages/ai/src/utils/overflow.ts, Kimi", 400, openAIError("Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)", "invalid_request_error", ""), tooLong(291351, 262144)},
		{"badlogic/pi-mono packages/ai/src/utils/overflow.ts, MiniMax", 400, openAIError("invalid params, context window exceeds limit", "bad_request_error", ""), tooLong(0, 0)},
		{"BerriAI/litellm litellm/litellm_core_utils/exception_mapping_utils.py, Cerebras", 400, `{"message":"Please reduce the length of the messages or completion. Current length is 36700 while limit is 8192","type":"invalid_request_error","code":"context_length_exceeded"}`, tooLong(0, 0)},
		{"Cohere, as its clients test for it", 400, `{"message":"too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292."}`, tooLong(0, 0)},
		{"Z.ai, code 1261", 400, `{"error":{"code":"1261","message":"Prompt exceeds max length"}}`, tooLong(0, 0)},
		{"QwenLM/qwen-code 3652, DashScope", 400, openAIError("InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]", "invalid_request_error", "invalid_parameter_error"), tooLong(0, 0)},
		{"refly-ai/refly 1177, OpenRouter", 400, `{"error":{"code":400,"message":"This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens (42832 of text input). Please reduce the length of either one."}}`, tooLong(42832, 32768)},
		{"openai/openai-python: code string_above_max_length", 400, openAIError("Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576, but got a string with length 1540820 instead.", "invalid_request_error", "string_above_max_length"), tooLong(0, 0)},
	},
	// A proxy that refuses the size of a request answers in HTML.
	"a request that is too large": {
		{"open-webui/open-webui 3273, nginx", 413, "<html><head><title>413 Request Entity Too Large</title></head><body><center><h1>413 Request Entity Too Large</h1></center></body></html>", tooLong(0, 0)},
		{"chatchat-space/Langchain-Chatchat 3307", 413, ``, tooLong(0, 0)},
		{"page Errors of platform.claude.com", 413, `{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`, tooLong(0, 0)},
		{"badlogic/pi-mono packages/ai/src/utils/overflow.ts, Cerebras without a body", 413, ``, tooLong(0, 0)},
	},
	// A refusal of the prompt's content is final and has its own code.
	"a verdict on the content": {
		{"openai/openai-python 331, Azure", 400, `{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy. Please modify your prompt and retry.","type":null,"param":"prompt","code":"content_filter","status":400}}`, filtered},
		{"BerriAI/litellm litellm/litellm_core_utils/exception_mapping_utils.py, OpenAI", 400, openAIError("Invalid prompt: your prompt was flagged as potentially violating our usage policy.", "invalid_request_error", "invalid_prompt"), filtered},
		{"BerriAI/litellm litellm/litellm_core_utils/exception_mapping_utils.py, OpenAI", 400, openAIError("Your request was rejected.", "invalid_request_error", "content_policy_violation"), filtered},
		{"DeepSeek, as its clients test for it", 400, openAIError("Content Exists Risk", "invalid_request_error", "invalid_request_error"), filtered},
		{"page error-code of alibabacloud.com/help/model-studio", 400, openAIError("Input data may contain inappropriate content.", "data_inspection_failed", "data_inspection_failed"), filtered},
		{"page Errors of openrouter.ai: moderation", 403, `{"error":{"code":403,"message":"openai/gpt-4.1 requires moderation on OpenRouter. Your input was flagged for \"harassment\".","metadata":{"reasons":["harassment"]}}}`, filtered},
	},
	"abilities that the model lacks": {
		{"michaelfeil/infinity libs/infinity_emb/infinity_emb/infinity_server.py", 400, openAIError("ModelNotDeployedError: model=`m` does not support `embed` for modality `text`. Reason: classify", "", ""), hopeless},
		{"sgl-project/sglang tokenizer_manager.py", 400, `{"object":"error","message":"This model does not appear to be an embedding model by default. Please add ` + "`--is-embedding`" + ` when launching the server or try another model.","type":"BadRequestError","code":400}`, hopeless},
		{"vllm-project/vllm vllm/entrypoints/openai/api_server.py", 400, openAIError("The model does not support Chat Completions API", "BadRequestError", "400"), hopeless},
		{"vllm-project/vllm vllm/entrypoints/openai/api_server.py", 400, openAIError("The model does not support Completions API", "BadRequestError", "400"), hopeless},
		{"vllm-project/vllm vllm/entrypoints/openai/api_server.py", 400, openAIError("The model does not support Embeddings API", "BadRequestError", "400"), hopeless},
		{"ollama/ollama server/routes.go", 400, openAIError(`\"m\" does not support chat`, "invalid_request_error", ""), hopeless},
		{"ollama/ollama server/routes.go", 400, openAIError(`\"m\" does not support generate`, "invalid_request_error", ""), hopeless},
	},
	"others": {
		{"huggingface/text-generation-inference router/src/server.rs", 424, `{"error":"Request failed during generation: Server error: CANCELLED","error_type":"generation"}`, retried},
		{"huggingface/text-generation-inference router/src/validation.rs", 422, "{\"error\":\"Input validation error: `inputs` cannot be empty\",\"error_type\":\"validation\"}", fails},
		{"ml-explore/mlx-lm mlx_lm/server.py", 404, `{"error":"Repository Not Found"}`, engine.Error{Class: engine.ServerFault}},
	},
}

// TestRefusalsOfServers classifies refusals in the original wording of servers.
func TestRefusalsOfServers(t *testing.T) {
	t.Parallel()
	for kind, list := range sayings {
		for _, s := range list {
			t.Run(kind+"/"+s.source, func(t *testing.T) {
				t.Parallel()
				fault := parseFault([]byte(s.body))
				x := refusal{status: s.status, fault: fault}
				if s.status == 200 {
					x.status = cmp.Or(fault.status, 500)
				}
				got := x.classify(requestSettings{form: "json_schema", params: []string{"stop"}})
				if got.Class != s.want.Class || got.Overloaded != s.want.Overloaded || got.TooLong != s.want.TooLong || s.want.Code != "" && got.Code != s.want.Code {
					t.Errorf("got %+v, want %+v", got, s.want)
				}
				if got.Prompt != s.want.Prompt || got.Context != s.want.Context {
					t.Errorf("%d tokens of %d, want %d of %d", got.Prompt, got.Context, s.want.Prompt, s.want.Context)
				}
			})
		}
	}
}

// TestEveryWordHasARefusal looks for a refusal with each word of the rules, so that the
// rules have no unused words.
func TestEveryWordHasARefusal(t *testing.T) {
	t.Parallel()
	var said []string
	for _, list := range sayings {
		for _, s := range list {
			said = append(said, refusal{fault: parseFault([]byte(s.body))}.lowerCaseText())
		}
	}
	for name, words := range map[string][]string{
		"tooLongWords": tooLongWords, "contentWords": contentWords, "quotaWords": quotaWords,
		"loadingWords": loadingWords, "overloadWords": overloadWords, "abilityWords": abilityWords,
	} {
		for _, word := range words {
			if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, word) }) {
				t.Errorf("%s: no refusal of the list contains %q", name, word)
			}
		}
	}
}
