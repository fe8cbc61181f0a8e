// Proxycost measures what throttle proxy costs, beside no proxy and beside a plain
// [net/http/httputil.ReverseProxy], each in a process of its own:
//
//	go run ./internal/lab/proxycost
//	scripts/with-redis.sh sh -c 'go run ./internal/lab/proxycost -redis "$REDIS_URL"'
//
// A client sends requests at a rate, and then as fast as it goes, to an upstream with TLS that
// answers at once. The processor time and the memory of the proxy's process come from /proc, so it
// needs Linux.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/stat"
)

func main() {
	rate := flag.Int("rate", 150, "requests a second, before those as fast as it goes")
	during := flag.Duration("for", 20*time.Second, "how long each load lasts")
	rounds := flag.Int("rounds", 3, "how often all is measured")
	redis := flag.String("redis", "", "the Redis of a throttle proxy that is measured, too; default: none is")
	out := flag.String("out", "", "a file for the result, too")
	server := flag.String("serve", "", "of its own processes: what they serve")
	flag.Parse()
	var err error

	// The program starts itself again as the servers that it measures.
	switch *server {
	case "upstream":
		err = serveUpstream(flag.Arg(0))
	case "plain":
		err = servePlain(flag.Arg(0))
	default:
		err = measure(*rate, *during, *rounds, *redis, *out)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "proxycost:", err)
		os.Exit(1)
	}
}

// A way is a path of requests.
type way struct {
	name  string
	start func() (*process, error) // nil: there is no proxy
	path  string
}

// A bench is what all ways have in common.
type bench struct {
	self, throttle, policies string // files
	host                     string // of the upstream
	client                   *http.Client
	out                      io.Writer
}

// measure measures all ways, in turns, and prints a table, also into a file if its name is not "".
func measure(rate int, during time.Duration, rounds int, redis, file string) error {
	folder, err := os.MkdirTemp("", "proxycost")
	if err != nil {
		return err
	}

	defer os.RemoveAll(folder)
	b := &bench{out: os.Stdout, throttle: filepath.Join(folder, "throttle"), policies: filepath.Join(folder, "policies.yaml")}

	if file != "" {
		f, err := os.Create(file)
		if err != nil {
			return err
		}

		defer f.Close()
		b.out = io.MultiWriter(os.Stdout, f)
	}

	upstream, err := b.prepare(folder)
	if err != nil {
		return err
	}

	defer upstream.stop()
	fmt.Fprintf(b.out, "date: %s, %s, %d cores, load %s", time.Now().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(), machineLoad())
	fmt.Fprintf(b.out, "each load for %v, requests of %d bytes, answers of %d, an upstream with TLS on the same machine; p50 and p99 from when a request was due\n\n", during, len(body), len(answer))
	fmt.Fprintf(b.out, "%-24s %-9s %9s %9s %9s %9s %11s %9s %9s\n", "way", "load", "sent/s", "p50", "p99", "cores", "us/request", "MB", "MB most")

	// In turns, so that a change of the machine meets all ways.
	for range rounds {
		for _, w := range b.ways(redis) {
			if err := b.try(w, rate, during); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}

	return nil
}

// prepare builds the command, starts the upstream, and has proxies and the client trust the upstream's certificate.
func (b *bench) prepare(folder string) (upstream *process, err error) {
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}

	build := exec.Command("go", "build", "-o", b.throttle, ".")
	build.Dir, build.Stderr = filepath.Join("cmd", "throttle"), os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("go build in cmd/throttle: %w", err)
	}

	// The upstream writes its certificate, which the proxies and the client then trust.
	certificate := filepath.Join(folder, "ca.pem")
	if upstream, err = start(said, b.self, "-serve", "upstream", certificate); err != nil {
		return nil, err
	}

	b.host = upstream.address
	text, err := os.ReadFile(certificate)
	if err == nil {
		err = os.WriteFile(b.policies, fmt.Appendf(nil, "version: 1\npolicies:\n  - {name: api, match: \"%s/\", key: \"{header.Authorization}\", limit: 1000000/s}\n", b.host), 0o600)
	}
	if err == nil {
		err = os.Setenv("SSL_CERT_FILE", certificate) // for the proxies
	}

	if err != nil {
		upstream.stop()
		return nil, err
	}

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	b.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers, TLSClientConfig: &tls.Config{RootCAs: roots}}}

	return upstream, nil
}

// ways returns the compared ways.
func (b *bench) ways(redis string) []way {
	proxy := func(args ...string) func() (*process, error) {
		args = append([]string{"proxy", b.policies, "--listen", "127.0.0.1:0", "--private", "127.0.0.1", "--admin", "127.0.0.1:0"}, args...)
		return func() (*process, error) { return start("the proxy is at http://", b.throttle, args...) }
	}

	ways := []way{
		{name: "no proxy"},
		{"plain ReverseProxy", func() (*process, error) { return start(said, b.self, "-serve", "plain", b.host) }, "/"},
		{"throttle proxy, memory", proxy(), "/" + b.host + "/"},
	}

	if redis != "" {
		ways = append(ways, way{"throttle proxy, Redis", proxy("--redis", redis), "/" + b.host + "/"})
	}

	return ways
}

// try measures one way, first at a rate and then as fast as it goes, and prints a row for each.
func (b *bench) try(w way, rate int, during time.Duration) error {
	defer b.client.CloseIdleConnections()

	// Without a proxy nothing is started, and no process is measured.
	if w.start == nil {
		for _, rate := range []int{rate, 0} {
			l, err := send(b.client, "https://"+b.host+"/", rate, during)
			if err != nil {
				return err
			}
			b.print(w.name, rate, l, "")
		}

		return nil
	}

	p, err := w.start()
	if err != nil {
		return err
	}

	defer p.stop()
	target := "http://" + p.address + w.path
	if err := one(b.client, target); err != nil { // before the measurement: it connects
		return err
	}

	for _, rate := range []int{rate, 0} {
		before, err := p.used()
		if err != nil {
			return err
		}

		l, err := send(b.client, target, rate, during)
		if err != nil {
			return err
		}

		cost, err := p.cost(before, l)
		if err != nil {
			return err
		}

		b.print(w.name, rate, l, cost)
	}

	return nil
}

// print prints the row of a load, at a rate or with 0 as fast as it goes. cost has its last columns.
func (b *bench) print(name string, rate int, l *load, cost string) {
	pace := "fast"
	if rate > 0 {
		pace = fmt.Sprintf("%d/s", rate)
	}
	round := func(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }
	fmt.Fprintf(b.out, "%-24s %-9s %9.0f %9s %9s%s\n", name, pace, l.perSecond(), round(l.quantile(0.5)), round(l.quantile(0.99)), cost)
}

// machineLoad says how busy the machine is.
func machineLoad() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown\n"
	}
	return string(text)
}

// A load is requests that are sent, and how long each took.
type load struct {
	took    []time.Duration
	elapsed time.Duration // from the first to the last
}

func (l *load) perSecond() float64                   { return float64(len(l.took)) / l.elapsed.Seconds() }
func (l *load) quantile(share float64) time.Duration { return stat.Quantile(l.took, share) }

// callers is how many requests are on their way at once at most.
const callers = 32

// body is what each request sends: as long as a short question to a language model.
var body = strings.Repeat("question ", 100)

// send sends requests to a URL for a time: rate of them a second, or with 0 as many as it can. It returns the last error of
// a request.
func send(client *http.Client, target string, rate int, during time.Duration) (*load, error) {
	var mu sync.Mutex
	var failed error
	l := &load{}
	due := make(chan time.Time)

	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for at := range due {
				err := one(client, target)
				mu.Lock()
				l.took = append(l.took, time.Since(at))
				if err != nil {
					failed = err
				}

				mu.Unlock()
			}
		})
	}

	// Requests are due in even steps, whether earlier ones have an answer or not.
	begun := time.Now()
	for i := 0; time.Since(begun) < during; i++ {
		at := time.Now()
		if rate > 0 {
			at = begun.Add(time.Duration(i) * time.Second / time.Duration(rate))
			time.Sleep(time.Until(at)) // a caller that is late counts from when it was due
		}

		due <- at
	}

	close(due)
	all.Wait()
	l.elapsed = time.Since(begun)

	return l, failed
}

// one sends one request.
func one(client *http.Client, target string) error {
	req, err := http.NewRequest(http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		return err
	}

	req.Header.Set("Authorization", "Bearer key")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}

	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", resp.Status)
	}

	return nil
}

// said is what stands before the address in what servers print.
const said = "the server is at "

// answer is the upstream's answer, as long as a short JSON of an API.
var answer = `{"data":"` + strings.Repeat("x", 500) + `"}`

// serveUpstream serves the upstream until the process is ended, and writes its certificate to a file.
func serveUpstream(certificate string) error {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer))
	}))
	server.StartTLS()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(certificate, text, 0o600); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, said+server.Listener.Addr().String()+"/")
	select {}
}

// servePlain serves a plain reverse proxy to a host, until the process is ended.
func servePlain(host string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost, base.DisableCompression = 100, true // as throttle proxy has them
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: host}) },
		Transport: base,
	}

	fmt.Fprintln(os.Stderr, said+listener.Addr().String()+"/")
	return http.Serve(listener, proxy)
}

// A process is a server that runs while it is measured.
type process struct {
	cmd     *exec.Cmd
	address string // that it said on stderr
}

// start starts a server process, and returns when it has said its address on stderr, behind the text before. A process that
// ends without that is an error.
func start(before string, name string, args ...string) (*process, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")

	talk, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}

	lines := bufio.NewScanner(talk)
	for lines.Scan() {
		if _, rest, ok := strings.Cut(lines.Text(), before); ok {
			address, _, _ := strings.Cut(rest, "/")
			go func() {
				for lines.Scan() { // read on, so that the process never waits for a reader
				}
			}()

			return &process{cmd, address}, nil
		}
	}

	_ = cmd.Wait()
	return nil, fmt.Errorf("%s did not say where it is", name)
}

func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// tick is the unit of processor time in /proc: Linux has 100 of them a second on all its platforms of Go.
const tick = 10 * time.Millisecond

// used returns how much processor time the process has used.
func (p *process) used() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}

	_, rest, _ := strings.Cut(string(text), ") ") // the fields after the name, which may have spaces
	fields := strings.Fields(rest)

	// The times of the process in user mode and in the kernel, in ticks.
	const user, system = 11, 12
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/%d/stat has another form", p.cmd.Process.Pid)
	}

	var ticks int64
	for _, field := range fields[user : system+1] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}

	return time.Duration(ticks) * tick, nil
}

// memory returns the process's memory now, or its peak, in bytes: "VmRSS" or "VmHWM".
func (p *process) memory(name string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name+":" {
			kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no %s", p.cmd.Process.Pid, name)
}

// cost returns what a load cost the process, as columns of the table: cores, microseconds for a request, and memory now and
// at the most. before is the processor time that the process had used before the load.
func (p *process) cost(before time.Duration, l *load) (string, error) {
	after, err := p.used()
	if err != nil {
		return "", err
	}

	now, err := p.memory("VmRSS")
	if err != nil {
		return "", err
	}

	most, err := p.memory("VmHWM")
	if err != nil {
		return "", err
	}

	used := after - before
	return fmt.Sprintf(" %9.3f %11.0f %9.1f %9.1f", used.Seconds()/l.elapsed.Seconds(), used.Seconds()*1e6/float64(len(l.took)), float64(now)/1e6, float64(most)/1e6), nil
}
