// Package slogthrottle logs what throttle does by log/slog, at levels and in an
// amount that a program can leave on in production:
//
//	logs := slogthrottle.New(slog.Default(), slogthrottle.Options{})
//	transport, err := throttle.New(throttle.Config{
//		Store: store, Policies: policies, Observe: throttle.Observers(logs.Observe, metrics.Observe),
//	})
//
// # Lines
//
// The message of a line is "throttle: " and the kind of the event. [Level] says
// how the kinds are logged: at the level of a logger by default,
// [slog.LevelInfo], a program hears of refusals, bans, long waits, outages and
// mistakes, and not of each request. Attributes have the names that metrics and
// spans have for the same: the page on [events] lists them. An attribute
// without a value is left out.
//
// # How many
//
// For each kind and policy at most [Options.PerMinute] lines are logged within a minute, and as
// many for all failures of the store together. Lines below [slog.LevelInfo] are not limited. The
// first line after that minute has the number of omitted lines in [AttrOmitted].
//
// A request that no policy matches is told once for each host, of the first
// [MaxHosts] hosts. Then a line says so, and further hosts are not told.
//
// # Secrets
//
// A line holds no URL, no token and no raw key. The error with which a caller's
// own context ended is the program's own: of it a line says only whether the
// context was cancelled or its deadline passed.
//
// [events]: https://github.com/fleetthrottle/throttle/blob/main/docs/reference/events.md#attributes
package slogthrottle

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/telemetry"
)

// Options are optional.
type Options struct {
	// Level returns the level of the lines of a kind of events. Defaults to
	// nil: the function [Level].
	Level func(throttle.EventKind) slog.Level

	// PerMinute is how many lines of one kind and one policy are logged at
	// most within a minute, where their level is [slog.LevelInfo] or above.
	// A negative number means no limit. Defaults to [DefaultPerMinute].
	PerMinute int
}

// DefaultPerMinute is the PerMinute of [Options] that set none.
const DefaultPerMinute = 6

// MaxHosts is of how many hosts a [Logger] says that no policy matches requests
// to them.
const MaxHosts = 128

// The bounds of a [Logger]'s memory.
const (
	maxName   = 255  // bytes of the name of a host or a policy: more than names in use have
	maxSeries = 1024 // kinds and policies whose lines are counted, beside one count for each kind
)

// AttrOmitted is the attribute with the number of lines of the same kind and
// policy that were left out before a line.
const AttrOmitted = "throttle.omitted"

// Level returns the default level of a kind of events:
// [slog.LevelError] if a request failed, or a promise is at risk, for a reason
// that the program or its store must mend; [slog.LevelWarn] if the upstream
// refused, the limits kept a request from being sent, or the program or its
// table has a mistake; [slog.LevelInfo] for what an operator wants to know
// beside that; [slog.LevelDebug] for what happens to each request.
func Level(k throttle.EventKind) slog.Level {
	switch k {
	case throttle.EventStoreFailed, throttle.EventFunctionFailed:
		return slog.LevelError
	case throttle.EventRefused, throttle.EventGaveUp, throttle.EventLate, throttle.EventPenalized, throttle.EventClosed,
		throttle.EventLowered, throttle.EventIllegible, throttle.EventUnmatched, throttle.EventDropped, throttle.EventOff:
		return slog.LevelWarn
	case throttle.EventStillWaiting, throttle.EventOpened, throttle.EventShadowed, throttle.EventStale:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// A Logger logs events. It is safe for concurrent use, and has nothing to close. One serves all
// transports and limiters of a program. The zero Logger equals New(nil, Options{}).
type Logger struct {
	logger  *slog.Logger // nil for slog.Default
	options Options

	mu     sync.Mutex
	series map[series]*count
	hosts  map[string]bool // the hosts that have a line: see note
}

// A series is the lines that are counted together for PerMinute.
type series struct {
	kind   throttle.EventKind
	policy string
}

// A count is how many lines of a series there were in the minute that began at
// a time.
type count struct {
	began   time.Time
	logged  int // how many lines were logged
	omitted int // how many lines were left out
}

// New returns a logger of events. Give its Observe to
// [throttle.Config.Observe]. Without a logger it uses [slog.Default] as that is
// when an event comes.
func New(logger *slog.Logger, o Options) *Logger {
	return &Logger{logger: logger, options: o}
}

// levelOf returns the level of a kind of events.
func (l *Logger) levelOf(k throttle.EventKind) slog.Level {
	if l.options.Level == nil {
		return Level(k)
	}
	return l.options.Level(k)
}

// perMinute returns how many lines of a series are logged within a minute at the most.
func (l *Logger) perMinute() int {
	switch n := l.options.PerMinute; {
	case n == 0:
		return DefaultPerMinute
	case n < 0:
		return math.MaxInt
	default:
		return n
	}
}

// Observe logs an event, with the context of the request, unless the logger leaves out its level or the line is omitted: the package's doc says which lines
// are. It is meant for [throttle.Config.Observe].
func (l *Logger) Observe(ctx context.Context, e throttle.Event) {
	logger, level := l.logger, l.levelOf(e.Kind)
	if logger == nil {
		logger = slog.Default()
	}
	if !logger.Enabled(ctx, level) {
		return
	}

	// Callers may ask for a policy or a host whose name is very long.
	e.Policy, e.Host = clip(e.Policy), clip(e.Host)
	message, attrs := "throttle: "+e.Kind.String(), make([]slog.Attr, 0, 12)
	switch {
	case e.Kind == throttle.EventRefused && errors.As(e.Err, new(*throttle.UnmatchedError)):
		return // the line of an EventUnmatched has said so
	case e.Kind == throttle.EventUnmatched:
		fresh, full := l.note(e.Host)
		if !fresh {
			return
		}

		// This host is not named, because further ones will not be.
		if full {
			message, e.Host = "throttle: unmatched: too many hosts to tell of any more", ""
			attrs = append(attrs, slog.Int("throttle.hosts", MaxHosts))
		}

	case level >= slog.LevelInfo:
		omitted, ok := l.count(&e)
		if !ok {
			return
		}
		if omitted > 0 {
			attrs = append(attrs, slog.Int(AttrOmitted, omitted))
		}
	}

	logger.LogAttrs(ctx, level, message, appendEvent(attrs, &e)...)
}

// clip returns the part of a name that is logged: maxName bytes at the most. A character of several bytes is logged whole or not at all.
func clip(name string) string {
	end := min(len(name), maxName)
	for end > 0 && end < len(name) && !utf8.RuneStart(name[end]) {
		end--
	}

	return name[:end]
}

// note records a host that no policy matches. fresh reports whether the event needs a line: that of the host, if it has none yet and is one of the
// first [MaxHosts] hosts, or the last line, which says that no further hosts are told. full reports that it is that last line.
func (l *Logger) note(host string) (fresh, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	// The first host beyond MaxHosts is recorded, too: it has got the last line.
	if l.hosts[host] || len(l.hosts) > MaxHosts {
		return false, false
	}
	full = len(l.hosts) == MaxHosts
	if l.hosts == nil {
		l.hosts = make(map[string]bool)
	}
	l.hosts[host] = true
	return true, full
}

// count counts the line of an event. ok reports whether the line may be logged under the maximum
// per minute. omitted is the number of lines to report with this line: those of the series that were left out since its last minute began.
func (l *Logger) count(e *throttle.Event) (omitted int, ok bool) {
	// The lines about a store that fails count together, whichever policy a
	// caller waited for.
	s := series{e.Kind, e.Policy}
	if e.Kind == throttle.EventStoreFailed {
		s.policy = ""
	}

	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()

	c := l.series[s]
	if c == nil {
		c = l.newCount(s, now)
	}

	// The first line of a minute says how many lines the minute before left out.
	if now.Sub(c.began) >= time.Minute {
		omitted, *c = c.omitted, count{began: now}
	}

	if c.logged >= l.perMinute() {
		c.omitted++
		return 0, false
	}

	c.logged++
	return omitted, true
}

// newCount returns the count of a new series. When there are maxSeries counts, it removes those whose minute is
// over. If there are none, all further series of a kind share one count, so that memory stays
// bounded. The mutex is held.
func (l *Logger) newCount(s series, now time.Time) *count {
	if len(l.series) >= maxSeries {
		for other, c := range l.series {
			if now.Sub(c.began) >= time.Minute {
				delete(l.series, other)
			}
		}
	}

	if len(l.series) >= maxSeries {
		s.policy = telemetry.Other
	}

	c := l.series[s]
	if c == nil {
		c = &count{began: now}
		if l.series == nil {
			l.series = make(map[series]*count)
		}
		l.series[s] = c
	}

	return c
}

// appendEvent appends the attributes of an event that have a value. A duration is rounded to milliseconds.
func appendEvent(attrs []slog.Attr, e *throttle.Event) []slog.Attr {
	text := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}

	// A duration that rounds to 0 is left out.
	length := func(key string, value time.Duration) {
		if rounded := value.Round(time.Millisecond); rounded != 0 {
			attrs = append(attrs, slog.Duration(key, rounded))
		}
	}

	text(telemetry.AttrPolicy, e.Policy)
	text(telemetry.AttrBudget, e.Budget)
	if e.Limit != (throttle.Limit{}) {
		text(telemetry.AttrLimit, e.Limit.String())
	}

	text(telemetry.AttrHost, e.Host)
	if e.Paused {
		attrs = append(attrs, slog.Bool(telemetry.AttrPaused, true))
	}

	text(telemetry.AttrNoteBy, e.Note.By)
	text(telemetry.AttrNoteReason, e.Note.Reason)
	length(telemetry.AttrDuration, e.Duration)
	length(telemetry.AttrLeft, e.Left)
	if e.Callers != 0 {
		attrs = append(attrs, slog.Int(telemetry.AttrCallers, e.Callers))
	}
	if e.Kind == throttle.EventLowered {
		attrs = append(attrs, slog.Float64(telemetry.AttrFrom, e.From), slog.Float64(telemetry.AttrTo, e.To))
	}

	text(telemetry.AttrErrorType, telemetry.ErrorType(e))
	text(telemetry.AttrErrorMessage, messageOf(e))
	return attrs
}

// messageOf returns the text of an event's error, or "" without one. For a caller that gave up it says only that the context was cancelled, or that
// its deadline passed: the cause of that is the program's own, and may hold a secret.
func messageOf(e *throttle.Event) string {
	if e.Err == nil {
		return ""
	}
	if e.Kind != throttle.EventGaveUp {
		return e.Err.Error()
	}

	timeout, ok := errors.AsType[net.Error](e.Err)
	if ok && timeout.Timeout() {
		return context.DeadlineExceeded.Error()
	}
	return context.Canceled.Error()
}
