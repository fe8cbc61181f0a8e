package proxyclients

import (
	"flag"
	"slices"
)

var pypi = flag.Bool("pypi", false, "play the clients of python/requirements.txt as well: scripts/install-clients.sh --pypi installs them")

// A client is a program under the base URL, and what its users must know.
type client struct {
	name     string // of its places
	start    func(*kits) []string
	variable string // has the base URL
	title    string // in docs/clients.md

	refused string // what the client calls an answer 429; "": it reports the status alone
	late    string // what the client calls a timeout
	tries   int    // how many requests it sends, unless told otherwise, for a call that is refused for an hour; 0: it sleeps for that hour
	repeats bool   // it sends a refused request again by itself when Retry-After says so
	asks    string // the variable with which Prefer is set, if the client has its own
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

// played are the clients of this run.
func played() []*client {
	if *pypi {
		return slices.Concat(clients, pypiClients)
	}
	return clients
}

// pypiClients are those that Debian has no package of.
var pypiClients = []*client{
	{
		name: "openai-python", title: "OpenAI for Python", start: venv("python_openai.py"), variable: "OPENAI_BASE_URL",
		refused: "RateLimitError", late: "APITimeoutError", tries: 1, repeats: true, asks: "OPENAI_CUSTOM_HEADERS",
	},
	{
		name: "anthropic-python", title: "Anthropic for Python", start: venv("python_anthropic.py"), variable: "ANTHROPIC_BASE_URL",
		refused: "RateLimitError", late: "APITimeoutError", tries: 3, repeats: true, asks: "ANTHROPIC_CUSTOM_HEADERS",
	},
}

// clients are those that make sdks plays.
var clients = []*client{
	{
		name: "openai-node", title: "OpenAI for Node", start: node("openai.mjs"), variable: "OPENAI_BASE_URL",
		refused: "RateLimitError", late: "APIConnectionTimeoutError", tries: 3, repeats: true, asks: "OPENAI_CUSTOM_HEADERS",
	},
	{
		name: "anthropic-node", title: "Anthropic for Node", start: node("anthropic.mjs"), variable: "ANTHROPIC_BASE_URL",
		refused: "RateLimitError", late: "APIConnectionTimeoutError", repeats: true, asks: "ANTHROPIC_CUSTOM_HEADERS",
	},
	{
		name: "requests", title: "requests", start: python("python_requests.py"), variable: "BASE_URL",
		refused: "HTTPError", late: "ReadTimeout", tries: 1,
	},
	{
		name: "httpx", title: "httpx", start: python("python_httpx.py"), variable: "BASE_URL",
		refused: "HTTPStatusError", late: "ReadTimeout", tries: 1,
	},
	{
		name: "fetch", title: "fetch", start: node("fetch.mjs"), variable: "BASE_URL",
		late: "TimeoutError", tries: 1,
	},
	{
		name: "axios", title: "axios", start: node("axios.mjs"), variable: "BASE_URL",
		refused: "ERR_BAD_REQUEST", late: "ECONNABORTED", tries: 1,
	},
	{
		name: "curl", title: "curl", start: func(*kits) []string { return []string{"sh", "curl.sh"} }, variable: "BASE_URL",
		refused: "22", late: "28", tries: 1,
	},
	{
		name: "guzzle", title: "Guzzle", start: func(k *kits) []string { return append(k.php[:1:1], "php/guzzle.php") }, variable: "BASE_URL",
		refused: "ClientException", late: "ConnectException", tries: 1,
	},
	{
		name: "java", title: "java.net.http", start: java("JavaNet"), variable: "BASE_URL",
		late: "HttpTimeoutException", tries: 1,
	},
	{
		name: "okhttp", title: "OkHttp", start: java("Ok"), variable: "BASE_URL",
		late: "InterruptedIOException", tries: 1,
	},
	{
		name: "go", title: "net/http", start: func(k *kits) []string { return k.gohttp }, variable: "BASE_URL",
		late: "*url.Error", tries: 1,
	},
}
