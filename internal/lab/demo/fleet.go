package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/retry"
)

// A fleet is some nodes and their upstream.
type fleet struct {
	base     string            // the URL of the upstream
	nodes    []*http.Client    // the client of each node's workers
	outsider http.RoundTripper // for a program that is none of the fleet
}

// app is the application that all nodes are.
const app = "dingexample"

// upstream is DingTalk with its published limits. Without the library the rule
// for an address is scaled by a hundred: a pull as short as this one meets it.
func (o options) upstream() *dingtalktest.Server {
	rules := dingtalktest.Options{People: o.people, IPLimit: o.address, Ban: o.ban}
	if o.unthrottled {
		rules.IPLimit /= 100
	}
	return dingtalktest.New(rules)
}

// fleet makes the nodes, and returns what ends them.
func (o options) fleet(ctx context.Context, upstream *dingtalktest.Server, args []string) (f fleet, stop func(), err error) {
	if o.redis != "" {
		return o.processes(ctx, upstream, args)
	}

	f = fleet{base: "https://oapi.dingtalk.com", outsider: upstream}
	store := memstore.New()
	for range o.nodes {
		node := &http.Client{Transport: upstream}
		if !o.unthrottled {
			if node, err = o.client(store, "", upstream); err != nil {
				return f, nil, err
			}
		}

		f.nodes = append(f.nodes, node)
	}

	return f, func() {}, nil
}

// client returns a client whose calls keep within DingTalk's limits, together with
// all others that share the store.
func (o options) client(store throttle.Store, host string, base http.RoundTripper) (*http.Client, error) {
	rows := dingtalk.Policies(dingtalk.Options{App: app, Host: host, Ban: o.ban})
	for i := range rows {
		rows[i].Jitter = o.jitter
	}
	t, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: rows, Base: base})
	if err != nil {
		return nil, err
	}
	return retry.NewClient(t).StandardClient(), nil
}

// pool keeps a connection for each worker.
func (o options) pool() *http.Transport {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = o.workers
	return base
}

// processes makes nodes that are processes. Each is a proxy: a request that a worker of the
// node calls leaves that process, when the budgets in Redis have room.
func (o options) processes(ctx context.Context, upstream *dingtalktest.Server, args []string) (f fleet, stop func(), err error) {
	server := httptest.NewServer(upstream)
	f = fleet{base: server.URL, outsider: o.pool()}
	var ends []func()
	stop = func() {
		for _, end := range slices.Backward(ends) {
			end()
		}
	}

	ends = append(ends, server.Close)
	for range o.nodes {
		proxy, end, err := start(ctx, append(slices.Clone(args), "-node", server.Listener.Addr().String()))
		if err != nil {
			stop()
			return f, nil, err
		}

		base := o.pool()
		base.Proxy = http.ProxyURL(proxy)
		f.nodes = append(f.nodes, &http.Client{Transport: base})
		ends = append(ends, end, base.CloseIdleConnections)
	}

	return f, stop, nil
}

// start starts this program as a node. It returns where the node listens, and what
// ends the node: the end of its input, so that no node outlives this process.
func start(ctx context.Context, args []string) (proxy *url.URL, end func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}

	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = os.Stderr

	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}

	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}

	end = func() {
		in.Close()
		_ = cmd.Wait()
	}

	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		end()
		return nil, nil, fmt.Errorf("a node did not start: %w", err)
	}

	return &url.URL{Scheme: "http", Host: strings.TrimSpace(address)}, end, nil
}

// beNode is the program as one node, until its input ends.
func (o options) beNode(in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // a terminal sends it to every process; the parent decides
	if !strings.Contains(o.redis, "://") {
		o.redis = "redis://" + o.redis
	}

	settings, err := redis.ParseURL(o.redis)
	if err != nil {
		return err
	}

	rdb := redis.NewClient(settings)
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("no answer from Redis: %w", err)
	}

	client, err := o.client(redisstore.New(rdb, redisstore.Options{}), o.node, o.pool())
	if err != nil {
		return err
	}

	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: repeatable, Transport: client.Transport})
	fmt.Fprintln(out, proxy.Listener.Addr())
	_, err = io.Copy(io.Discard, in)
	proxy.CloseClientConnections()

	return err
}

// repeatable makes the request that a proxy sends like a client's request: its body
// can be had again, so that the retrier repeats refused requests.
func repeatable(p *httputil.ProxyRequest) {
	body, _ := io.ReadAll(p.In.Body) // the upstream refuses a body that ends early
	p.Out.RequestURI = ""
	p.Out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	p.Out.Body, _ = p.Out.GetBody()
}
