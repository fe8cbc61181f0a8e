package envoy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/servers/envoy/internal/inbound"
)

// Defaults of a [Config].
const (
	DefaultMaxWait       = 5 * time.Second
	DefaultHeld          = 1024
	DefaultHeldPerBudget = 512
)

// Config configures a [Server].
type Config struct {
	// Transport holds the requests of external processing. Its base comes from [NewBase], and its Observe calls
	// [Observe]. Required.
	Transport *throttle.Transport

	// Limiters hold the calls of ShouldRateLimit. Defaults to nil: the rate limit service is not served.
	Limiters *throttle.Limiters

	// MaxWait limits how long a request is held. A caller can shorten the wait with the header "Prefer: wait=2".
	// message_timeout of the filter must be longer. [throttle.NoWait] holds nothing. Defaults to [DefaultMaxWait].
	MaxWait time.Duration

	// Held limits how many requests wait at once. Further requests are refused with 503, and calls of ShouldRateLimit
	// with OVER_LIMIT. Defaults to [DefaultHeld].
	Held int

	// HeldPerBudget limits how many requests wait at once for one budget, so that one busy key cannot take all places.
	// It needs [Observe]. Defaults to [DefaultHeldPerBudget].
	HeldPerBudget int

	// Token is a secret that callers must send as "authorization: Bearer TOKEN": set initial_metadata of the filter's
	// grpc_service. A call without it fails with UNAUTHENTICATED. Defaults to "": anyone may call.
	Token string

	// Unfit is called with a sentence about each call that shows a filter whose configuration keeps the server from
	// holding requests or from reading answers, and about each call that ended in a panic. Many goroutines call it. Defaults
	// to nil: no callback.
	Unfit func(detail string)

	// Options are passed to [grpc.NewServer], such as [grpc.Creds]. Defaults to nil: no TLS.
	Options []grpc.ServerOption
}

// check returns all mistakes in the configuration.
func (c *Config) check() error {
	var mistakes []error
	if c.Transport == nil {
		mistakes = append(mistakes, errors.New("envoy: Config.Transport is missing: use throttle.New with the Base of NewBase"))
	} else if _, ok := c.Transport.Unwrap().(*base); !ok {
		mistakes = append(mistakes, errors.New("envoy: Config.Transport sends requests itself, and Envoy would send them again: set Base to NewBase()"))
	}
	if c.Held < 0 {
		mistakes = append(mistakes, fmt.Errorf("envoy: Config.Held is %d: use 1 or more, or 0 for %d", c.Held, DefaultHeld))
	}
	if c.HeldPerBudget < 0 {
		mistakes = append(mistakes, fmt.Errorf("envoy: Config.HeldPerBudget is %d: use 1 or more, or 0 for %d", c.HeldPerBudget, DefaultHeldPerBudget))
	}

	return errors.Join(mistakes...)
}

// Limits of one call.
const (
	maxMessage = 2 << 20 // bytes of one message; Envoy's own buffers hold 1 MiB by default

	// A connection without traffic is probed after aliveAfter, and closed if the probe has no answer in aliveTime: the
	// slots of a machine that has gone must come back.
	aliveAfter = 20 * time.Second
	aliveTime  = 10 * time.Second
	idleTime   = 5 * time.Minute // without a call, until a connection is closed
)

// A Server holds requests of Envoy until the policies have room. It is safe for concurrent use. Create it with [New].
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer
	ratelimitv3.UnimplementedRateLimitServiceServer

	c      Config
	token  [sha256.Size]byte // hash of the token, so that a comparison takes the same time for all lengths
	grpc   *grpc.Server
	health *health.Server
	queue  *inbound.Queue
	counts counts
	stops  atomic.Bool // Stop was called

	// cut ends when the time to stop is over: conversations end without an error, and Envoy goes on alone.
	cut    context.Context
	cutOff context.CancelFunc

	// watched ends in Shutdown, and with it the watches of the server's health, which nothing else ends.
	watched    context.Context
	endWatches context.CancelFunc
}

// New returns a server, or an error that lists all mistakes in c.
func New(c Config) (*Server, error) {
	if err := c.check(); err != nil {
		return nil, err
	}

	// Only 0 stands for the default. A negative MaxWait has a meaning of its own.
	c.MaxWait, c.Held, c.HeldPerBudget = cmp.Or(c.MaxWait, DefaultMaxWait), cmp.Or(c.Held, DefaultHeld), cmp.Or(c.HeldPerBudget, DefaultHeldPerBudget)
	if c.Unfit == nil {
		c.Unfit = func(string) {}
	}

	s := &Server{c: c, token: sha256.Sum256([]byte(c.Token)), health: health.NewServer(), queue: inbound.NewQueue(c.Held, c.HeldPerBudget)}
	s.cut, s.cutOff = context.WithCancel(context.Background())
	s.watched, s.endWatches = context.WithCancel(context.Background())

	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.ConnectionTimeout(headersTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: aliveAfter, Timeout: aliveTime, MaxConnectionIdle: idleTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
			defer s.recovered(&err)
			if err := s.admit(stream.Context(), info.FullMethod); err != nil {
				return err
			}
			return next(srv, stream)
		}),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
			defer s.recovered(&err)
			if err := s.admit(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return next(ctx, r)
		}),
	}

	s.grpc = grpc.NewServer(append(options, c.Options...)...)
	extprocv3.RegisterExternalProcessorServer(s.grpc, s)
	healthpb.RegisterHealthServer(s.grpc, probes{s.health, s.watched})
	if c.Limiters != nil {
		ratelimitv3.RegisterRateLimitServiceServer(s.grpc, s)
	}

	return s, nil
}

// probes are the health checks. Their watches end with a context.
type probes struct {
	*health.Server
	watched context.Context
}

// Watch implements the health service. It ends with the caller's stream, or when watched ends.
func (p probes) Watch(r *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	ctx, end := context.WithCancel(stream.Context())
	defer end()
	defer context.AfterFunc(p.watched, end)()
	return p.Server.Watch(r, watch{stream, ctx})
}

// A watch is a stream with a context of its own.
type watch struct {
	healthpb.Health_WatchServer
	ctx context.Context
}

// Context implements [grpc.ServerStream].
func (w watch) Context() context.Context { return w.ctx }

// admit returns an error for a call without the token, and counts the call. Probes of grpc.health.v1 need no token.
func (s *Server) admit(ctx context.Context, method string) error {
	if s.c.Token == "" || strings.HasPrefix(method, "/grpc.health.v1.Health/") {
		return nil
	}
	for _, value := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		scheme, text, _ := strings.Cut(value, " ")
		sum := sha256.Sum256([]byte(strings.TrimSpace(text)))
		if strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1 {
			return nil
		}
	}

	s.counts.refused[noToken].Add(1)
	return status.Error(codes.Unauthenticated, "this server needs its token: send the metadata authorization: Bearer TOKEN")
}

// recovered turns a panic of a call into an error, because a panic would end the process with all other calls. It reports
// only the stack to [Config.Unfit]: the value of the panic may repeat parts of a request.
func (s *Server) recovered(err *error) {
	if recover() != nil {
		s.tellUnfit("a call ended in a panic, which is a mistake in throttle or in a policy:\n" + string(debug.Stack()))
		*err = status.Error(codes.Internal, "the call ended in a panic")
	}
}

// Serve accepts connections until [Server.Shutdown] is called, and returns nil then. It answers the health checks of
// grpc.health.v1: SERVING until [Server.Stop].
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Stop refuses new requests. Requests that wait get a start within the given time or are refused: at once if their start
// is known to be later, which needs [Observe], otherwise when the time is over. Answers in progress continue.
func (s *Server) Stop(within time.Duration) {
	s.health.Shutdown()
	s.stops.Store(true)
	s.queue.Stop(time.Now().Add(within))
}

// Shutdown ends the server when its calls have ended. Without a [Server.Stop] before, requests that wait are refused at
// once. When ctx ends, Shutdown ends the streams of requests that have started without an error, so that Envoy goes on
// with these requests alone, and returns the error of ctx, at most a second later.
func (s *Server) Shutdown(ctx context.Context) error {
	if !s.stops.Load() {
		s.Stop(0)
	}
	s.endWatches()

	ended := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(ended)
	}()

	var err error
	select {
	case <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}

	s.cutOff()
	if err != nil {
		// The streams end now. A connection whose peer does not read would not end, so it is closed after cutTime.
		timer := time.AfterFunc(cutTime, s.grpc.Stop)
		defer timer.Stop()
		<-ended
	}

	return err
}

// cutTime is how long the streams that [Server.Shutdown] cuts take to end, at most.
const cutTime = time.Second

// A reason is why a request was refused, as [Stats] names it.
type reason int

// The reasons.
const (
	noRoom     reason = iota // limit, within the time that the request could wait
	malformed                // message out of order, or a request that no policy could read
	noToken                  // token missing or wrong
	unreadable               // policy that cannot read the request
	storeAway                // store does not answer
	heldFull                 // too many requests wait, in all or for the budget
	stopping                 // server stops
	reasonCount
)

// reasonNames are the keys of [Stats.Refused].
var reasonNames = [reasonCount]string{"limit", "malformed", "token", "policy", "store", "held", "stopping"}

// Stats are counters of a [Server] since it was created.
type Stats struct {
	Held    int              // requests that wait now
	Streams int64            // streams of external processing that are open now
	Refused map[string]int64 // requests refused by reason; has a key for every reason
	Left    int64            // streams and calls whose caller left while its request waited
	Unfit   int64            // calls for which [Config.Unfit] was called
}

// counts are the counters of a server.
type counts struct {
	refused              [reasonCount]atomic.Int64
	streams, left, unfit atomic.Int64
}

// Stats returns the counters of the server.
func (s *Server) Stats() Stats {
	all := Stats{
		Held: s.queue.Len(), Streams: s.counts.streams.Load(), Left: s.counts.left.Load(), Unfit: s.counts.unfit.Load(),
		Refused: make(map[string]int64),
	}
	for i, name := range reasonNames {
		all.Refused[name] = s.counts.refused[i].Load()
	}
	return all
}

// tellUnfit reports a filter whose configuration does not fit, or a panic.
func (s *Server) tellUnfit(detail string) {
	s.counts.unfit.Add(1)
	s.c.Unfit(detail)
}
