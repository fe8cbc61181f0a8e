package proxyclients

import (
	"flag"
	"slices"
)

var pypi = flag.Bool("pypi", false, "play the clients of python/requirements.txt as well: scripts/install-clients.sh --pypi installs them")

// A client is a program under the base URL, and what its users must know: docs/use/other-languages.md says
// the same.
type client struct {
	name     string // of its places
	title    string // in docs/use/other-languages.md
	start    func(*kits) []string
	variable string // has the base URL
	line     string // what a user types

	gives   string  // how long it waits for an answer, unless told otherwise, in docs/use/other-languages.md
	timeout float64 // the same in seconds, as the client tells; 0: for ever; untold: it does not tell
	late    string  // what it calls its own timeout
	refused string  // what it calls an answer 429; "": it reports the status alone

	repeats string // what it does by itself with a refusal, in docs/use/other-languages.md
	retries int    // how often it repeats at most, as the client tells
	tries   int    // how many requests it sends for a call that is refused for an hour; 0: it sleeps for that hour
	obeys   bool   // it repeats when Retry-After says so
	wish    string // the variable with which its users set headers such as Prefer, if the client has its own
	told    bool   // it can be told to repeat a refused call when Retry-After says so
	brotli  bool   // it asks for answers in br, which policies cannot read
}

const untold = -1

// played are the clients of this run.
func played() []*client {
	if *pypi {
		return slices.Concat(clients, pypiClients)
	}
	return clients
}

func python(file string) func(*kits) []string {
	return func(k *kits) []string { return append(k.python[:1:1], "python/"+file) }
}

func venv(file string) func(*kits) []string {
	return func(*kits) []string { return []string{"python/.venv/bin/python", "python/" + file} }
}

func node(file string) func(*kits) []string {
	return func(k *kits) []string { return append(k.node[:1:1], "node/"+file) }
}

func java(class string) func(*kits) []string {
	return func(k *kits) []string { return append(k.java[:len(k.java):len(k.java)], class) }
}

// pypiClients are those that Debian has no package of.
var pypiClients = []*client{
	{
		name: "openai-python", title: "OpenAI for Python", start: venv("python_openai.py"),
		variable: "OPENAI_BASE_URL", line: "OPENAI_BASE_URL=http://127.0.0.1:7070/api.openai.com/v1",
		gives: "10 min", timeout: 600, late: "APITimeoutError", refused: "RateLimitError",
		repeats: "twice, not if `Retry-After` is above 2 min", retries: 2, tries: 1, obeys: true, wish: "OPENAI_CUSTOM_HEADERS",
	},
	{
		name: "anthropic-python", title: "Anthropic for Python", start: venv("python_anthropic.py"),
		variable: "ANTHROPIC_BASE_URL", line: "ANTHROPIC_BASE_URL=http://127.0.0.1:7070/api.anthropic.com",
		gives: "10 min", timeout: 600, late: "APITimeoutError", refused: "RateLimitError",
		repeats: "twice, soon if `Retry-After` is above 1 min", retries: 2, tries: 3, obeys: true, wish: "ANTHROPIC_CUSTOM_HEADERS",
	},
}

// clients are those that make sdks plays.
var clients = []*client{
	{
		name: "openai-node", title: "OpenAI for Node", start: node("openai.mjs"),
		variable: "OPENAI_BASE_URL", line: "OPENAI_BASE_URL=http://127.0.0.1:7070/api.openai.com/v1",
		gives: "10 min", timeout: 600, late: "APIConnectionTimeoutError", refused: "RateLimitError",
		repeats: "twice, soon if `Retry-After` is above 1 min", retries: 2, tries: 3, obeys: true, wish: "OPENAI_CUSTOM_HEADERS",
	},
	{
		name: "anthropic-node", title: "Anthropic for Node", start: node("anthropic.mjs"),
		variable: "ANTHROPIC_BASE_URL", line: "ANTHROPIC_BASE_URL=http://127.0.0.1:7070/api.anthropic.com",
		gives: "10 min", timeout: 600, late: "APIConnectionTimeoutError", refused: "RateLimitError",
		repeats: "twice, and sleeps for `Retry-After`, **however long**", retries: 2, obeys: true, wish: "ANTHROPIC_CUSTOM_HEADERS",
	},
	{
		name: "requests", title: "Python requests", start: python("python_requests.py"),
		variable: "BASE_URL", line: `requests.get("http://127.0.0.1:7070/api.example.com/v1/orders")`,
		gives: "never", timeout: untold, late: "ReadTimeout", refused: "HTTPError",
		repeats: "no", tries: 1, told: true,
	},
	{
		name: "httpx", title: "Python httpx", start: python("python_httpx.py"),
		variable: "BASE_URL", line: `httpx.Client(base_url="http://127.0.0.1:7070/api.example.com/v1")`,
		gives: "**5 s**", timeout: 5, late: "ReadTimeout", refused: "HTTPStatusError",
		repeats: "no", tries: 1,
	},
	{
		name: "aiohttp", title: "Python aiohttp", start: python("python_aiohttp.py"),
		variable: "BASE_URL", line: `session.get("http://127.0.0.1:7070/api.example.com/v1/orders")`,
		gives: "5 min", timeout: 300, late: "TimeoutError", refused: "ClientResponseError",
		repeats: "no", tries: 1,
	},
	{
		name: "fetch", title: "Node `fetch`", start: node("fetch.mjs"),
		variable: "BASE_URL", line: "fetch('http://127.0.0.1:7070/api.example.com/v1/orders')",
		gives: "5 min", timeout: untold, late: "TimeoutError",
		repeats: "no", tries: 1,
	},
	{
		name: "axios", title: "axios", start: node("axios.mjs"),
		variable: "BASE_URL", line: "axios.create({ baseURL: 'http://127.0.0.1:7070/api.example.com/v1' })",
		gives: "never", late: "ECONNABORTED", refused: "ERR_BAD_REQUEST",
		repeats: "no", tries: 1, brotli: true,
	},
	{
		name: "curl", title: "curl", start: func(*kits) []string { return []string{"sh", "curl.sh"} },
		variable: "BASE_URL", line: "curl --fail-with-body http://127.0.0.1:7070/api.example.com/v1/orders",
		gives: "never", timeout: untold, late: "28", refused: "22",
		repeats: "no", tries: 1, told: true,
	},
	{
		name: "guzzle", title: "PHP Guzzle", start: func(k *kits) []string { return append(k.php[:1:1], "php/guzzle.php") },
		variable: "BASE_URL", line: "new Client(['base_uri' => 'http://127.0.0.1:7070/api.example.com/v1/'])",
		gives: "never", late: "ConnectException", refused: "ClientException",
		repeats: "no", tries: 1,
	},
	{
		name: "java", title: "`java.net.http`", start: java("JavaNet"),
		variable: "BASE_URL", line: `HttpRequest.newBuilder(URI.create("http://127.0.0.1:7070/api.example.com/v1/orders"))`,
		gives: "never", late: "HttpTimeoutException",
		repeats: "no", tries: 1,
	},
	{
		name: "okhttp", title: "OkHttp", start: java("Ok"),
		variable: "BASE_URL", line: `new Request.Builder().url("http://127.0.0.1:7070/api.example.com/v1/orders")`,
		gives: "10 s", timeout: 10, late: "SocketTimeoutException",
		repeats: "no", tries: 1,
	},
	{
		name: "go", title: "Go `net/http`", start: func(k *kits) []string { return k.gohttp },
		variable: "BASE_URL", line: `http.Get("http://127.0.0.1:7070/api.example.com/v1/orders")`,
		gives: "never", late: "*url.Error",
		repeats: "no", tries: 1,
	},
}
