package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
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

// measure measures all ways, in turns.
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

	for range rounds {
		for _, w := range b.ways(redis) {
			if err := b.try(w, rate, during); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}

	return nil
}

// prepare builds the command and starts the upstream.
func (b *bench) prepare(folder string) (upstream *process, err error) {
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}

	build := exec.Command("go", "build", "-o", b.throttle, ".")
	build.Dir, build.Stderr = filepath.Join("cmd", "throttle"), os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("go build in cmd/throttle: %w", err)
	}

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

// try measures one way, at a rate and as fast as it goes.
func (b *bench) try(w way, rate int, during time.Duration) error {
	defer b.client.CloseIdleConnections()
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
	url := "http://" + p.address + w.path
	if err := one(b.client, url); err != nil {
		return err
	}

	for _, rate := range []int{rate, 0} {
		before, err := p.used()
		if err != nil {
			return err
		}

		l, err := send(b.client, url, rate, during)
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

// print prints a line.
func (b *bench) print(name string, rate int, l *load, cost string) {
	load := "fast"
	if rate > 0 {
		load = fmt.Sprintf("%d/s", rate)
	}
	round := func(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }
	fmt.Fprintf(b.out, "%-24s %-9s %9.0f %9s %9s%s\n", name, load, l.perSecond(), round(l.quantile(0.5)), round(l.quantile(0.99)), cost)
}

// machineLoad says how busy the machine is.
func machineLoad() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown\n"
	}
	return string(text)
}
