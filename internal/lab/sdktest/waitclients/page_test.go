//go:build unix

package waitclients

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPages: what the pages show runs as it stands there, before the file that they show.
func TestPages(t *testing.T) {
	readme, err := os.ReadFile("../../../../cmd/throttle/README.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(readme), "\n## The waiting API\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	page, err := os.ReadFile("../../../../docs/use/other-languages.md")
	require.NoError(t, err)

	dir := t.TempDir()
	findPrograms(t, dir)
	require.NoError(t, os.WriteFile(dir+"/shop.yaml", []byte(block(t, section, "yaml", "version: 1")), 0o600))
	build(t, "../../../../cmd/throttle", "go", "build", "-o", dir+"/throttle", ".")
	start := func() string {
		return startProxy(t, dir+"/throttle", "proxy", dir+"/shop.yaml", "--listen", "127.0.0.1:0")
	}
	address := start()
	var arrived atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	defer upstream.Close()
	clients, err := filepath.Abs("../../../../examples/clients")
	require.NoError(t, err)
	t.Setenv("THROTTLE_URL", "http://"+start()) // another: the lines of the section end with a penalty
	t.Setenv("PATH", clients+":"+os.Getenv("PATH"))
	t.Setenv("PYTHONPATH", clients)
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	run := func(words ...string) string {
		t.Helper()
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}

	var lines []string
	for _, line := range regexp.MustCompile(`(?m)^curl http://127\.0\.0\.1:7070/.*$`).FindAllString(section, -1) {
		lines = append(lines, strings.Replace(line, "127.0.0.1:7070", address, 1)+" --silent --show-error --fail-with-body")
	}
	require.Len(t, lines, 4)
	var answer struct{ Permit string }
	require.NoError(t, json.Unmarshal([]byte(run("sh", "-c", lines[0])), &answer))
	for _, line := range lines[1:] {
		require.Empty(t, run("sh", "-c", "permit="+answer.Permit+"\n"+line))
	}

	run("python3", "-c", "def fetch_orders(shop): return [shop]\n"+block(t, string(page), "python", "with acquire"))
	script := strings.ReplaceAll(block(t, string(page), "js", "await acquire"), "'./", "'"+clients+"/")
	require.NoError(t, os.WriteFile(dir+"/page.mjs", []byte("const fetchOrders = async shop => [shop]\n"+script), 0o600))
	run("node", dir+"/page.mjs")
	source := "class Page { static void fetchOrders(String shop) {} public static void main(String[] args) throws Exception {" + block(t, string(page), "java", "Client.acquire") + "}}"
	require.NoError(t, os.WriteFile(dir+"/Page.java", []byte(source), 0o600))
	run("java", "-classpath", dir, dir+"/Page.java")
	run("java", clients+"/Client.java", "imports")
	run("sh", "-c", strings.ReplaceAll(block(t, string(page), "sh", "throttled shop"), "https://acme.example.com", upstream.URL))
	require.EqualValues(t, 1, arrived.Load())

	terraform := regexp.MustCompile("`(THROTTLE_WAIT=.*) terraform apply").FindStringSubmatch(string(page))
	require.NotNil(t, terraform)
	require.Equal(t, "applied\n", run("sh", "-c", terraform[1]+" echo applied"))
}

// block returns the block of code of a page that has some text.
func block(t *testing.T, page, language, with string) string {
	t.Helper()
	for _, b := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(page, -1) {
		if strings.Contains(b[1], with) {
			return b[1]
		}
	}
	t.Fatalf("no %s with %q", language, with)
	return ""
}
