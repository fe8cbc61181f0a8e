package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/internal/fleet"
	"github.com/fleetthrottle/throttle/internal/redissim"
)

// memberEnv holds the orders of a process that is a node of a measured fleet.
const memberEnv = "THROTTLE_SCALE_MEMBER"

// orders are what a member is told.
type orders struct {
	Scene scene
	Node  int // which one it is
	Redis string
}

// memberMain is the program of a node: it says that it is ready, waits for the time at
// which to begin, plays its part, and prints its samples. It ends when its parent does.
func memberMain(in io.Reader, out io.Writer) error {
	var o orders
	if err := json.Unmarshal([]byte(os.Getenv(memberEnv)), &o); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: o.Redis})
	defer client.Close()
	if err := client.Ping(context.Background()).Err(); err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	lines := bufio.NewReader(in)
	line, err := lines.ReadString('\n')
	if err != nil {
		return err
	}
	begin, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		return err
	}
	go func() {
		_, err := lines.ReadString('\n')
		fmt.Fprintln(os.Stderr, "scale: the parent is gone:", err)
		os.Exit(1)
	}()
	time.Sleep(time.Until(time.Unix(0, begin)))
	clients := make([]redis.UniversalClient, o.Scene.Nodes)
	clients[o.Node] = client
	p, err := o.Scene.start(time.Duration(begin), clients)
	if err != nil {
		return err
	}
	time.Sleep(o.Scene.Settle + o.Scene.Length)
	p.end()
	return json.NewEncoder(out).Encode(p.Samples)
}

// measure plays a scene in real time: each node is a process, and there is one real server.
func (s scene) measure(addr string) (*record, error) {
	ctx, cancel := context.WithCancel(context.Background())
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	if err := errors.Join(client.FlushAll(ctx).Err(), client.ConfigResetStat(ctx).Err()); err != nil {
		cancel()
		return nil, err
	}
	var members []*member
	defer func() {
		cancel() // ends those that are still there
		for _, m := range members {
			_ = m.cmd.Wait() // what mattered was read from its output
		}
	}()
	for i := range s.Nodes {
		m, err := enlist(ctx, orders{s, i, addr})
		if err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	for _, m := range members {
		if line, err := m.out.ReadString('\n'); line != "ready\n" {
			return nil, fmt.Errorf("scale: a member is not ready: %w", err)
		}
	}
	begin := time.Now().Add(500 * time.Millisecond)
	for _, m := range members {
		if _, err := fmt.Fprintln(m.in, begin.UnixNano()); err != nil {
			return nil, err
		}
	}
	r := &record{scene: s, Samples: make([][]fleet.Sample, s.Upstreams), from: time.Duration(begin.Add(s.Settle).UnixNano())}
	r.to = r.from + s.Length
	if err := r.observe(ctx, client, begin); err != nil {
		return nil, err
	}
	for _, m := range members {
		var samples [][]fleet.Sample
		if err := json.NewDecoder(m.out).Decode(&samples); err != nil {
			return nil, err
		}
		for u := range samples {
			r.Samples[u] = append(r.Samples[u], samples[u]...)
		}
	}
	return r, nil
}

// observe asks the server at the beginning and at the end what it has done.
func (r *record) observe(ctx context.Context, client *redis.Client, begin time.Time) error {
	var infos []string
	for _, at := range []time.Duration{r.Settle, r.Settle + r.Length/2, r.Settle + r.Length} {
		time.Sleep(time.Until(begin.Add(at)))
		info, err := client.Info(ctx, "commandstats", "cpu", "clients", "memory", "stats").Result()
		if err != nil {
			return err
		}
		infos = append(infos, info)
	}
	first, last := infos[0], infos[2]
	r.Loads = []redissim.Load{{
		Calls:    called(last, "evalsha") - called(first, "evalsha"),
		Beats:    called(last, "publish") - called(first, "publish"), // and what scripts publish
		BytesIn:  int(redissim.Number(last, "total_net_input_bytes") - redissim.Number(first, "total_net_input_bytes")),
		BytesOut: int(redissim.Number(last, "total_net_output_bytes") - redissim.Number(first, "total_net_output_bytes")),
	}}
	r.Busy = (redissim.Processor(last) - redissim.Processor(first)) / r.Length.Seconds()
	r.Links = int(redissim.Number(infos[1], "connected_clients")) - 1
	return nil
}

// called finds in the text of INFO how often a command was called.
func called(info, command string) (n int) {
	for line := range strings.Lines(info) {
		if text, found := strings.CutPrefix(line, "cmdstat_"+command+":calls="); found {
			text, _, _ = strings.Cut(text, ",")
			n, _ = strconv.Atoi(text)
		}
	}
	return n
}

// A member is a process, seen from the program that started it.
type member struct {
	cmd *exec.Cmd
	in  io.Writer // its end tells the member that it is alone
	out *bufio.Reader
}

func enlist(ctx context.Context, o orders) (*member, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	m := &member{cmd: exec.CommandContext(ctx, self)}
	m.cmd.Env = append(slices.Clone(os.Environ()), memberEnv+"="+string(text))
	m.cmd.Stderr = os.Stderr
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m.out = bufio.NewReader(out)
	return m, m.cmd.Start()
}
