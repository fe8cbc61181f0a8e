package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/internal/lab/redissim"
)

// role is the role of a process that is a node of a measured fleet.
const role = "scale"

// orders are a member's instructions.
type orders struct {
	Scene scene
	Node  int // which one it is
	Redis string
}

// memberMain is the program of a node: it says that it is ready, waits for the time at
// which to begin, plays its part, and tells its samples. It ends when its parent does.
func memberMain(program *crew.Link) error {
	var o orders
	if err := program.Hear(&o); err != nil {
		return err
	}

	client := redis.NewClient(&redis.Options{Addr: o.Redis})
	defer client.Close()
	if err := client.Ping(context.Background()).Err(); err != nil {
		return err
	}
	if err := program.Tell("ready"); err != nil {
		return err
	}

	var begin int64
	if err := program.Hear(&begin); err != nil {
		return err
	}

	context.AfterFunc(program.Alone(), func() { os.Exit(1) })
	time.Sleep(time.Until(time.Unix(0, begin)))
	clients := make([]redis.UniversalClient, o.Scene.Nodes)
	clients[o.Node] = client
	p, err := o.Scene.start(time.Duration(begin), clients)
	if err != nil {
		return err
	}

	time.Sleep(o.Scene.Settle + o.Scene.Length)
	p.end()
	return program.Tell(p.Samples)
}

// measure plays a scene in real time, on an emptied real server: each node is a process of its own.
func (s scene) measure(addr string) (*record, error) {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	if err := errors.Join(client.FlushAll(ctx).Err(), client.ConfigResetStat(ctx).Err()); err != nil {
		return nil, err
	}

	var all []orders
	for i := range s.Nodes {
		all = append(all, orders{s, i, addr})
	}

	members, err := crew.Muster(ctx, role, all)
	if err != nil {
		return nil, err
	}

	// All members begin at the same moment: late enough for all to be told of it before.
	defer members.Kill()
	begin := time.Now().Add(500 * time.Millisecond)
	if err := members.Tell(begin.UnixNano()); err != nil {
		return nil, err
	}

	r := &record{scene: s, Samples: make([][]fleet.Sample, s.Upstreams), from: time.Duration(begin.Add(s.Settle).UnixNano())}
	r.to = r.from + s.Length
	if err := r.observe(ctx, client, begin); err != nil {
		return nil, err
	}

	for _, m := range members {
		var samples [][]fleet.Sample
		if err := m.Hear(&samples); err != nil {
			return nil, err
		}

		for u := range samples {
			r.Samples[u] = append(r.Samples[u], samples[u]...)
		}
	}

	return r, nil
}

// observe asks the server about its work at the beginning, in the middle and at the end of the measurement, and sets the
// record's loads, links and use of a processor. It returns at the end of the measurement.
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

	// Counters are compared between the ends of the measurement, and connections are counted in its middle.
	first, last := infos[0], infos[2]
	r.Loads = []redissim.Load{{
		Calls:    called(last, "evalsha") - called(first, "evalsha"),
		Beats:    called(last, "publish") - called(first, "publish"), // and what scripts publish
		BytesIn:  int(redissim.Number(last, "total_net_input_bytes") - redissim.Number(first, "total_net_input_bytes")),
		BytesOut: int(redissim.Number(last, "total_net_output_bytes") - redissim.Number(first, "total_net_output_bytes")),
	}}

	r.Busy = (redissim.Processor(last) - redissim.Processor(first)) / r.Length.Seconds()
	r.Links = int(redissim.Number(infos[1], "connected_clients")) - 1 // without the client that asks
	return nil
}

// called returns how often a command was called, by the text of INFO: 0 if INFO does not name it.
func called(info, command string) (n int) {
	for line := range strings.Lines(info) {
		if text, found := strings.CutPrefix(line, "cmdstat_"+command+":calls="); found {
			text, _, _ = strings.Cut(text, ",")
			n, _ = strconv.Atoi(text)
		}
	}
	return n
}
