package dashboard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// TestWhy: the sentence that says why requests wait names what holds them, in each language.
func TestWhy(t *testing.T) {
	window := moment{Limit: "20/s", Kind: windowed, Capacity: 20}
	with := func(m moment, change func(*moment)) moment {
		change(&m)
		return m
	}
	for name, c := range map[string]struct {
		moment           moment
		english, chinese string
	}{
		"room": {
			with(window, func(m *moment) { m.Used = 7 }),
			"Nothing holds a request: 7 of 20 are used.",
			"不用排队：限额 20，用了 7。",
		},
		"full": {
			with(window, func(m *moment) { m.Used, m.Wait = 20, 812*time.Millisecond }),
			"All 20 of 20/s are used: the next free start is in 812 ms, when the oldest one no longer counts.",
			"20/s 已经用完，再过 812 毫秒最早的一批不再计数，才能放行。",
		},
		"booked": {
			with(window, func(m *moment) { m.Used, m.Booked, m.Wait, m.Waiting = 20, 17, 3266*time.Millisecond, 63 }),
			"20 of 20 are used, the next 17 booked, and those in line come first: a request that comes now could start in 3.3 s. 63 requests wait.",
			"限额 20，用了 20，另有 17 个已排定，前面还有请求在排队：现在来的请求再过 3.3 秒才能放行。有 63 个请求在排队。",
		},
		"full, with a line": {
			moment{Limit: "5/s", Kind: windowed, Capacity: 5, Used: 5, Booked: 2, Waiting: 42, Wait: 8400 * time.Millisecond},
			"5 of 5 are used, the next 2 booked, and those in line come first: a request that comes now could start in 8.4 s. 42 requests wait.",
			"限额 5，用了 5，另有 2 个已排定，前面还有请求在排队：现在来的请求再过 8.4 秒才能放行。有 42 个请求在排队。",
		},
		"booked, no line": {
			with(window, func(m *moment) { m.Used, m.Booked, m.Wait, m.Waiting = 20, 3, 266*time.Millisecond, 3 }),
			"20 of 20 are used and the next 3 booked: the next free start is in 266 ms. 3 requests wait.",
			"限额 20，用了 20，另有 3 个已排定，再过 266 毫秒才能放行。有 3 个请求在排队。",
		},
		"held elsewhere": {
			with(window, func(m *moment) { m.Used, m.Waiting = 3, 18 }),
			"There is room here: those who wait start in a moment, or another limit holds them. 18 requests wait.",
			"这里有余量：排队的马上放行，或者在等别的限额。有 18 个请求在排队。",
		},
		"line": {
			with(window, func(m *moment) { m.Used, m.Wait, m.Waiting = 12, 400*time.Millisecond, 40 }),
			"12 of 20 are used, and those who came first take the rest: the next free start is in 400 ms. 40 requests wait.",
			"限额 20，用了 12，余下的先给排在前面的请求，再过 400 毫秒才能放行。有 40 个请求在排队。",
		},
		"paused": {
			with(window, func(m *moment) {
				m.Left, m.By, m.Reason, m.Waiting, m.Wait = 9*time.Minute+51*time.Second, "alice", "the shop moves", 62, 10*time.Minute
			}),
			"alice paused it: “the shop moves”; it opens in 9 min 51 s. 62 requests wait.",
			"alice 人工暂停了这份限额，原因是“the shop moves”，9 分钟 51 秒后恢复。有 62 个请求在排队。",
		},
		"paused by a Chinese name": {
			with(window, func(m *moment) { m.Left, m.By, m.Reason = 10*time.Second, "小王", "短信通道维护" }),
			"小王 paused it: “短信通道维护”; it opens in 10 s.",
			"小王人工暂停了这份限额，原因是“短信通道维护”，10 秒后恢复。",
		},
		"paused without a reason": {
			with(window, func(m *moment) { m.Left, m.By = time.Hour, "alice" }),
			"alice paused it; it opens in 1 h.",
			"alice 人工暂停了这份限额，1 小时后恢复。",
		},
		"paused by a program": {
			with(window, func(m *moment) { m.Left, m.Closer = time.Minute, fleet.ByProgram }),
			"A program paused it; it opens in 1 min.",
			"程序自己暂停了这份限额，1 分钟后恢复。",
		},
		"ban": {
			with(window, func(m *moment) { m.Left, m.Repeated = 5*time.Minute, 2 }),
			"The upstream refused a request, so nothing starts for another 5 min; it refused again 2 times in a row.",
			"对方拒绝过请求，限额自动暂停，5 分钟后恢复；恢复之后又被拒绝，已连续 2 次。",
		},
		"slow start": {
			with(window, func(m *moment) { m.Used, m.Wait, m.Opened = 2, 130*time.Millisecond, 1400*time.Millisecond }),
			"It opened 1.4 s ago and fills up slowly after the penalty: the next free start is in 130 ms.",
			"1.4 秒前才恢复，正在慢慢加量，再过 130 毫秒才能放行。",
		},
		"slots": {
			moment{Limit: "8 in flight", Kind: inFlight, Capacity: 8, Used: 8, Waiting: 3},
			"All 8 slots are in use: the next request starts when another one ends. 3 requests wait.",
			"同时最多 8 个，已经占满，要等前面的请求结束。有 3 个请求在排队。",
		},
		"slots, nobody waits": {
			moment{Limit: "8 in flight", Kind: inFlight, Capacity: 8, Used: 8},
			"All 8 slots are in use: the next request starts when another one ends.",
			"同时最多 8 个，已经占满，要等前面的请求结束。",
		},
		"one slot": {
			moment{Limit: "1 in flight", Kind: inFlight, Capacity: 1, Used: 1, Waiting: 2},
			"The only slot is in use: the next request starts when another one ends. 2 requests wait.",
			"同时最多 1 个，已经占满，要等前面的请求结束。有 2 个请求在排队。",
		},
		"slots with room": {
			moment{Limit: "8 in flight", Kind: inFlight, Capacity: 8, Used: 7},
			"Nothing holds a request: 7 of 8 are used.",
			"不用排队：限额 8，用了 7。",
		},
		"slots, in line": {
			moment{Limit: "8 in flight", Kind: inFlight, Capacity: 8, Used: 7, Waiting: 3},
			"7 of 8 slots are in use, and those who came first take the others. 3 requests wait.",
			"同时最多 8 个，已占 7 个，其余的先给排在前面的请求。有 3 个请求在排队。",
		},
		"spaced": {
			moment{Limit: "40/s paced", Kind: spaced, Capacity: 1, Used: 1, Wait: 25 * time.Millisecond},
			"40/s paced spaces starts out: the next free start is in 25 ms.",
			"40/s paced 要求请求均匀发出，再过 25 毫秒才能放行。",
		},
		"bucket": {
			moment{Limit: "2/s burst 40", Kind: bucketed, Capacity: 40, Used: 40, Booked: 3, Wait: 2 * time.Second},
			"The bucket of 2/s burst 40 is empty and the next 3 booked: the next free start is in 2.0 s.",
			"2/s burst 40 的令牌用完了，另有 3 个已排定，再过 2.0 秒才能放行。",
		},
		"bucket, with a line": {
			moment{Limit: "2/s burst 40", Kind: bucketed, Capacity: 40, Used: 40, Booked: 3, Waiting: 9, Wait: 5 * time.Second},
			"The bucket of 2/s burst 40 is empty and the next 3 booked; those in line come first: a request that comes now could start in 5.0 s. 9 requests wait.",
			"2/s burst 40 的令牌用完了，另有 3 个已排定，前面还有请求在排队：现在来的请求再过 5.0 秒才能放行。有 9 个请求在排队。",
		},
		"spaced, with a line": {
			moment{Limit: "40/s paced", Kind: spaced, Capacity: 1, Used: 1, Waiting: 4, Wait: 125 * time.Millisecond},
			"40/s paced spaces starts out; those in line come first: a request that comes now could start in 125 ms. 4 requests wait.",
			"40/s paced 要求请求均匀发出，前面还有请求在排队：现在来的请求再过 125 毫秒才能放行。有 4 个请求在排队。",
		},
		"unlimited": {
			moment{Limit: "unlimited", Kind: unlimited},
			"Nothing holds a request.",
			"不用排队。",
		},
		"never": {
			with(window, func(m *moment) { m.Used, m.Wait = 20, -1 }),
			"No start can be planned.",
			"排不出放行时间。",
		},
		"learned": {
			with(window, func(m *moment) { m.Used, m.Wait, m.Ceiling = 12, time.Second, 12.5 }),
			"12 of 20 are used, and those who came first take the rest: the next free start is in 1.0 s. The fleet has learned to use only 12.5 of 20/s.",
			"限额 20，用了 12，余下的先给排在前面的请求，再过 1.0 秒才能放行。根据对方的拒绝，目前只用 20/s 里的 12.5。",
		},
		"shadow": {
			with(window, func(m *moment) { m.Used, m.Wait, m.Shadow = 20, time.Second, true }),
			"This policy only counts. If it held requests: all 20 of 20/s are used: the next free start is in 1.0 s, when the oldest one no longer counts.",
			"这条策略只计数。如果生效：20/s 已经用完，再过 1.0 秒最早的一批不再计数，才能放行。",
		},
		"shadow with room": {
			with(window, func(m *moment) { m.Shadow = true }),
			"This policy only counts, and would hold nothing now.",
			"这条策略只计数。就算生效，现在也不用排队。",
		},
		"unknown": {
			moment{Err: "no node says what its limit is"},
			"The state of the budget is unknown: no node says what its limit is",
			"不知道这份限额现在怎么样：no node says what its limit is",
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, phrase{c.english, c.chinese}, whyOf(c.moment))
		})
	}
}

// TestSpan: lengths of time have two units at the most, as the page's script writes them.
func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration][2]string{
		0:                                     {"0 ms", "0 毫秒"},
		999 * time.Millisecond:                {"999 ms", "999 毫秒"},
		1260 * time.Millisecond:               {"1.3 s", "1.3 秒"},
		12 * time.Second:                      {"12 s", "12 秒"},
		time.Minute:                           {"1 min", "1 分钟"},
		61 * time.Minute:                      {"1 h 1 min", "1 小时 1 分钟"},
		time.Hour + 3*time.Second:             {"1 h", "1 小时"},
		26*time.Hour + 30*time.Minute:         {"1 d 2 h", "1 天 2 小时"},
		59*time.Second + 700*time.Millisecond: {"1 min", "1 分钟"},
	} {
		require.Equal(t, want, [2]string{span(d), spanChinese(d)}, d.String())
	}
}

// TestRequestsOf: requests are counted, and not what they cost.
func TestRequestsOf(t *testing.T) {
	require.Equal(t, 0, requestsOf(0, 0, 0, 200))
	require.Equal(t, 6, requestsOf(6, 0, 1200, 200))
	require.Equal(t, 8, requestsOf(6, 400, 1600, 200))
	require.Equal(t, 7, requestsOf(6, 100, 1300, 1000), "a start that is booked is one request at least")
	require.Equal(t, 7, requestsOf(0, 3, 7, 1), "a store that does not count")
	require.Equal(t, 4, requestsOf(0, 0, 800, 200))
	require.InDelta(t, 1, average(0, 0), 0)
	require.InDelta(t, 250, average(1000, 4), 0)
}
