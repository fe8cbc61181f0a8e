package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEnvironment: base URLs of APIs that limits name lead through the proxy, and all further variables stay.
func TestEnvironment(t *testing.T) {
	const url = "http://127.0.0.1:7"
	defaults := []string{
		"ANTHROPIC_BASE_URL=" + url + "/api.anthropic.com", "DASHSCOPE_HTTP_BASE_URL=" + url + "/dashscope.aliyuncs.com/api/v1",
		"GOOGLE_GEMINI_BASE_URL=" + url + "/generativelanguage.googleapis.com",
		"OPENAI_API_BASE=" + url + "/api.openai.com/v1", "OPENAI_BASE_URL=" + url + "/api.openai.com/v1", "THROTTLE_URL=" + url,
	}

	for _, c := range []struct {
		variables []string
		want      []string // in place of the defaults of the same names
		told      string
	}{
		{nil, nil, ""},
		{[]string{"HOME=/home/a", "EMPTY=", "A=b=c"}, []string{"HOME=/home/a", "EMPTY=", "A=b=c"}, ""},
		{[]string{"OPENAI_BASE_URL="}, nil, ""},
		{[]string{"OPENAI_BASE_URL=https://api.deepseek.com"}, []string{"OPENAI_BASE_URL=" + url + "/api.deepseek.com"}, ""},
		{[]string{"OPENAI_BASE_URL=https://api.deepseek.com/v1/?a=b"}, []string{"OPENAI_BASE_URL=" + url + "/api.deepseek.com/v1/?a=b"}, ""},
		{[]string{"GITHUB_API_URL=https://api.deepseek.com/x"}, []string{"GITHUB_API_URL=" + url + "/api.deepseek.com/x"}, ""},
		{[]string{"X_ENDPOINT=https://api.deepseek.com/x"}, []string{"X_ENDPOINT=" + url + "/api.deepseek.com/x"}, ""},
		{[]string{"X_URL=https://api.deepseek.com/x"}, []string{"X_URL=https://api.deepseek.com/x"}, ""},
		{[]string{"OPENAI_BASE_URL=https://gate.example/v1"}, []string{"OPENAI_BASE_URL=https://gate.example/v1"}, "OPENAI_BASE_URL leads to gate.example, which no limit names: its calls are not held. --limit gate.example/=20/s would hold them"},
		{[]string{"OPENAI_BASE_URL=http://localhost:1234/v1"}, []string{"OPENAI_BASE_URL=http://localhost:1234/v1"}, ""},
		{[]string{"OPENAI_BASE_URL=https://a:b@api.deepseek.com"}, []string{"OPENAI_BASE_URL=https://a:b@api.deepseek.com"}, ""},
		{[]string{"OPENAI_BASE_URL=https://[::1"}, []string{"OPENAI_BASE_URL=https://[::1"}, ""},
		// In another throttle run.
		{[]string{"THROTTLE_URL=http://127.0.0.1:9", "OPENAI_BASE_URL=http://127.0.0.1:9/api.deepseek.com/v1"}, []string{"OPENAI_BASE_URL=" + url + "/api.deepseek.com/v1"}, ""},
		// In a network with a proxy.
		{[]string{"http_proxy=http://proxy:1"}, []string{"http_proxy=http://proxy:1", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1"}, ""},
		{[]string{"HTTP_PROXY=http://proxy:1", "no_proxy=a"}, []string{"HTTP_PROXY=http://proxy:1", "NO_PROXY=127.0.0.1", "no_proxy=a,127.0.0.1"}, ""},
	} {
		want := slices.Clone(c.want)
		for _, d := range defaults {
			name, _, _ := strings.Cut(d, "=")
			if !slices.ContainsFunc(want, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
				want = append(want, d)
			}
		}

		var told []string
		e := environment{url: url, tell: func(line string) { told = append(told, line) }, named: func(host string) bool { return host != "gate.example" }}
		require.ElementsMatch(t, want, e.of(slices.Clone(c.variables)), "%v", c.variables)
		require.Equal(t, c.told, strings.Join(told, "\n"))
	}
}
