package layers_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/layers"
)

// root is the order of the files of package throttle, the lowest first, and the one
// place where it is written. A file names only what it declares itself and what is
// declared in the files before it.
var root = slices.Concat(
	[]string{"doc.go"},

	// What is limited: values that can be checked and printed.
	[]string{"limit.go", "calendar.go", "limit_check.go", "limit_text.go", "limit_parse.go"},
	[]string{"priority.go", "contextoptions.go", "quota.go", "errors.go"},

	// What a store is asked, and what observers are told.
	[]string{"store.go", "event.go", "panic.go"},

	// A policy, and the functions for its fields.
	[]string{"key.go", "penalty.go", "policy.go", "charge.go", "config.go"},

	// Policies made ready, and what a request costs them.
	[]string{"compiledpolicy.go", "policyset.go", "quote.go"},

	// One caller's start: book, wait, revalidate.
	[]string{"estimators.go", "closings.go", "recent.go", "engine.go", "acquisition.go", "storequestion.go", "tell.go", "maxwait.go", "freshness.go", "giveback.go", "storecall.go", "notices.go"},
	[]string{"book.go", "revalidate.go", "slots.go", "wait.go", "quoted.go", "report.go"},

	// HTTP: a request's attempts, its response, its way through the transport.
	[]string{"transport.go", "responsebody.go", "attempt.go"},
	[]string{"detach.go", "send.go", "feedback.go", "response.go", "roundtrip.go"},

	// Work that is not HTTP.
	[]string{"demand.go", "permit.go", "penalize.go", "limiter.go", "limiters.go"},
)

// ledger is the order of the files of package ledger.
var ledger = slices.Concat(
	// What a row keeps, and what a charge asks of it.
	[]string{"doc.go", "row.go", "rule.go", "entries.go", "penalty.go", "probe.go", "ceiling.go"},

	// The lines, and the nodes that stand in them.
	[]string{"slots.go", "queue.go", "lease.go", "listed.go"},

	// A search for a start in one row.
	[]string{"search.go", "bucket.go", "age.go", "unlimited.go", "place.go", "ramp.go", "earliest.go", "turn.go"},

	// Rows and records as bytes.
	[]string{"expiry.go", "codec.go", "marshal.go", "unmarshal.go", "record.go"},

	// What one request does to several rows.
	[]string{"waiter.go", "request.go", "short.go", "book.go", "line.go", "penalize.go", "reconcile.go", "renew.go", "status.go"},
)

// memstore is the order of the files of package memstore.
var memstore = []string{"clock.go", "audience.go", "shard.go", "store.go", "watch.go", "queue.go", "memstore.go"}

// redisstore has the orders of the files of redisstore and of its packages.
var redisstore = map[string][]string{
	"internal/commit": {"op.go", "batch.go", "queues.go", "gates.go", "call.go", "gather.go", "execute.go", "commit.go"},
	"internal/line": {
		"options.go", "gathering.go", "turn.go", "full.go", "queue.go", "starts.go", "news.go", "lease.go", "slots.go", "report.go", "line.go",
	},
	".": {"options.go", "primary.go", "news.go", "watch.go", "book.go", "pause.go", "reconcile.go", "used.go", "status.go", "heartbeat.go", "redisstore.go"},
}

// TestRoot: no file of package throttle refers to one above it.
func TestRoot(t *testing.T) {
	up, err := layers.Upward("../..", root)
	require.NoError(t, err)
	require.Empty(t, up)
}

// TestUpward: references to what stands above are found, and files that nobody has
// put into a layer.
func TestUpward(t *testing.T) {
	up, err := layers.Upward("testdata/upward", []string{"low.go", "top.go"})
	require.NoError(t, err)
	require.Equal(t, []layers.Reference{{"low.go", "top.go", "field"}, {"low.go", "top.go", "high"}}, up)

	up, err = layers.Upward("testdata/upward", []string{"top.go", "low.go"})
	require.NoError(t, err)
	require.Equal(t, []layers.Reference{{"top.go", "low.go", "Low"}}, up)

	_, err = layers.Upward("testdata/upward", []string{"top.go", "gone.go"})
	require.EqualError(t, err, "low.go has no layer\ngone.go does not exist")
}

// TestLedger: no file of package ledger refers to one above it.
func TestLedger(t *testing.T) {
	up, err := layers.Upward("../ledger", ledger)
	require.NoError(t, err)
	require.Empty(t, up)
}

// TestMemstore: no file of package memstore refers to one above it.
func TestMemstore(t *testing.T) {
	up, err := layers.Upward("../../memstore", memstore)
	require.NoError(t, err)
	require.Empty(t, up)
}

// TestRedisstore: no file of redisstore, nor of its packages, refers to one above it.
func TestRedisstore(t *testing.T) {
	for dir, order := range redisstore {
		up, err := layers.Upward("../../redisstore/"+dir, order)
		require.NoError(t, err, dir)
		require.Empty(t, up, dir)
	}
}
