package fleet

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Node is a program as it reported itself last. Its texts are fit to be printed.
type Node struct {
	ID      string    `json:"id"`
	Program string    `json:"program"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Library string    `json:"library"` // the version of throttle
	Up      Millis    `json:"up_ms"`
	Ago     Millis    `json:"ago_ms"` // since its last report
	Silent  bool      `json:"silent"` // it has missed three reports
	File    FileState `json:"file"`
	Budgets int       `json:"budgets"`           // that it used lately
	Starts  float64   `json:"starts_per_second"` // requests that it handed on

	record *record
}

// mostNodes bounds what is read.
const mostNodes = 5000

// silentAfter is after how many reports that did not come a node is silent.
const silentAfter = 3

// Nodes returns the programs that report themselves.
func (f *Fleet) Nodes(ctx context.Context) ([]Node, error) {
	all, _, _, err := f.nodes(ctx)
	return all, err
}

// nodes reads what programs have reported; as of a moment of the server's clock. So many
// records could not be read.
func (f *Fleet) nodes(ctx context.Context) (all []Node, now time.Time, illegible int, err error) {
	if now, err = f.now(ctx); err != nil {
		return nil, now, 0, err
	}

	all = []Node{}
	ids, err := f.client.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: f.keys.nodes, Start: 0, Stop: mostNodes - 1, Rev: true}).Result()
	if err != nil {
		return nil, now, 0, f.commandError(err)
	}

	for chunk := range slices.Chunk(ids, 100) {
		names := make([]string, len(chunk))
		for i, id := range chunk {
			names[i] = f.keys.node + id.Member.(string)
		}

		records, err := f.client.MGet(ctx, names...).Result()
		if err != nil {
			return nil, now, 0, f.commandError(err)
		}

		for i, text := range records {
			text, ok := text.(string)
			if !ok {
				continue // it has just expired
			}

			r, err := decode(text)
			if err != nil {
				illegible++
				continue
			}

			id := Clean(chunk[i].Member.(string), longestName)
			all = append(all, nodeOf(id, &r, now.Sub(time.UnixMicro(int64(chunk[i].Score)))))
		}
	}

	slices.SortFunc(all, func(a, b Node) int {
		return strings.Compare(a.Program+"\x00"+a.Host+"\x00"+a.ID, b.Program+"\x00"+b.Host+"\x00"+b.ID)
	})
	return all, now, illegible, nil
}

// nodeOf is the node that a record describes, which came some time ago.
func nodeOf(id string, r *record, ago time.Duration) Node {
	ago = max(0, ago)
	n := Node{
		ID: id, Program: Clean(r.Program, longestName), Host: Clean(r.Host, longestName), PID: r.PID,
		Library: Clean(r.Library, longestName), Up: Millis{r.Up.Duration + ago}, Ago: Millis{ago},
		Silent: ago > silentAfter*max(r.Every.Duration, time.Second), File: r.File.clip(), record: r,
	}
	if n.File.InForce != "" {
		n.File.For.Duration += ago
	}

	n.File.Grace.Duration = max(0, n.File.Grace.Duration-ago)
	for i := range r.Policies {
		n.Budgets += len(r.Policies[i].Budgets)
	}

	if !n.Silent { // what a silent node did last is not what it does now
		n.Starts = round(r.rate(r.Requests))
	}

	return n
}

// rate is how many starts that is in a second.
func (r *record) rate(starts int64) float64 {
	if r.Span.Duration <= 0 {
		return 0
	}
	return float64(max(0, starts)) / r.Span.Seconds()
}

// round leaves what is worth reading of a rate.
func round(rate float64) float64 { return math.Round(rate*100) / 100 }
