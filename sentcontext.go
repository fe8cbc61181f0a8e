package throttle

import (
	"context"
	"net/http/httptrace"
	"sync"
)

// A sentContext is the context of the request that the base gets: the caller's, with
// the hooks of an attempt and an end of its own. It lies in the attempt, and makes the
// rest when the base asks for it. The zero sentContext can only be ended.
type sentContext struct {
	context.Context // the caller's
	hooks           hooks

	mu     sync.Mutex
	trace  httptrace.ClientTrace
	traced bool            // trace is made
	own    context.Context // the caller's with another end; nil: nobody could tell it from the caller's
	cancel context.CancelCauseFunc
	ended  bool
	cause  error
}

// hooks are what the base calls on the way of a request.
type hooks interface {
	gotConn(httptrace.GotConnInfo)
	wroteHeaders()
}

// traced is a context that holds a trace and nothing else: so it tells the key of traces,
// which package httptrace keeps to itself, from others.
var traced = httptrace.WithClientTrace(context.Background(), new(httptrace.ClientTrace))

// end ends the context, unless it was ended before.
func (c *sentContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended, c.cause = true, cause
	if c.own != nil {
		c.cancel(cause)
	}
}

// Done implements [context.Context].
func (c *sentContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.withEnd().Done()
}

// Err implements [context.Context].
func (c *sentContext) Err() error { return c.current().Err() }

// Value implements [context.Context].
func (c *sentContext) Value(key any) any {
	if traced.Value(key) != nil {
		return c.withHooks()
	}
	return c.current().Value(key)
}

// current is the caller's context for as long as nobody can tell it from this one.
// Package context asks it for the key of its own contexts, too: so those that are derived
// from this one are linked to it without a goroutine.
func (c *sentContext) current() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own == nil && !c.ended {
		return c.Context
	}
	return c.withEnd()
}

// withEnd returns the caller's context with an end of its own. The mutex is held.
func (c *sentContext) withEnd() context.Context {
	if c.own == nil {
		c.own, c.cancel = context.WithCancelCause(c.Context)
		if c.ended {
			c.cancel(c.cause)
		}
	}
	return c.own
}

// withHooks returns the hooks, with those of the caller behind them.
func (c *sentContext) withHooks() *httptrace.ClientTrace {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.traced {
		c.traced = true
		c.trace.GotConn, c.trace.WroteHeaders = c.hooks.gotConn, c.hooks.wroteHeaders
		if httptrace.ContextClientTrace(c.Context) != nil {
			httptrace.WithClientTrace(c.Context, &c.trace) // which adds the caller's
		}
	}
	return &c.trace
}
