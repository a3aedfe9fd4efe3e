from rows import MAX_TOKENS, answer, key, messages, model, prompts, report, url

from distilabel.models import OpenAILLM

llm = OpenAILLM(
    model=model, base_url=url, api_key=key, use_offline_batch_generation=True, offline_batch_generation_block_until_done=1,
)
llm.load()
got = llm.generate_outputs([messages(prompt) for prompt in prompts], max_new_tokens=MAX_TOKENS)
report([
    answer(row, one["generations"][0], {"input_tokens": one["statistics"]["input_tokens"][0], "output_tokens": one["statistics"]["output_tokens"][0]})
    for row, one in enumerate(got)
])
