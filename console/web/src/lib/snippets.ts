import { apiURL } from '../api/client'

// The request of the form as a shell command and as Python, with all rows. The shell
// command uses a here-document, because arguments have a limited length. The key is not
// known here.
export const curl = (path: string, body: unknown) =>
  `curl ${apiURL(path)} \\
  -H "Authorization: Key $ROWMILL_API_KEY" \\
  -H "Content-Type: application/json" \\
  --data-binary @- <<'END'
${JSON.stringify(body, null, 2)}
END`

export const python = (path: string, body: unknown) =>
  `import json, os, urllib.request

job = json.loads(${pythonString(JSON.stringify(body, null, 2))})

request = urllib.request.Request(
    "${apiURL(path)}",
    data=json.dumps(job).encode(),
    headers={
        "Authorization": "Key " + os.environ["ROWMILL_API_KEY"],
        "Content-Type": "application/json",
    },
)
print(json.load(urllib.request.urlopen(request)))`

// openai returns Python code that uses this node with OpenAI's client, and lists its models
// or runs other code.
export const openai = (code = 'print(client.models.list().data)') =>
  `from openai import OpenAI
client = OpenAI(base_url="${apiURL('/v1')}", api_key="YOUR_KEY")
${code}`

// openaiBatch returns Python code that makes a batch of a file of requests.
export const openaiBatch = () =>
  openai(`file = client.files.create(file=open("requests.jsonl", "rb"), purpose="batch")
client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")`)

const pythonString = (s: string) => `r"""${s}"""`
