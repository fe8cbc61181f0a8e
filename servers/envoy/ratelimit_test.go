package envoy_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/servers/envoy"
	"github.com/fleetthrottle/throttle/store"
)

// describe returns a descriptor with entries in pairs.
func describe(pairs ...string) *descriptorv3.RateLimitDescriptor {
	d := new(descriptorv3.RateLimitDescriptor)
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &descriptorv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// ask asks the rate limit service, as the filter ratelimit does with this timeout.
func (s *scene) ask(timeout time.Duration, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(s.Context(), timeout)
	defer cancel()
	return s.rls.ShouldRateLimit(ctx, r)
}

// TestDescriptorsAreDemands: a descriptor names a policy and a key, hits_addend is the cost, and all are booked together.
func TestDescriptorsAreDemands(t *testing.T) {
	free := describe("policy", "all")
	free.HitsAddend = wrapperspb.UInt64(0)
	costly := describe("policy", "all")
	costly.HitsAddend = wrapperspb.UInt64(5)

	for name, c := range map[string]struct {
		request     *ratelimitv3.RateLimitRequest
		all, tenant int
	}{
		"the domain is the policy":          {&ratelimitv3.RateLimitRequest{Domain: "all", Descriptors: []*descriptorv3.RateLimitDescriptor{describe()}}, 1, 0},
		"an entry is the policy":            {&ratelimitv3.RateLimitRequest{Domain: "x", Descriptors: []*descriptorv3.RateLimitDescriptor{describe("policy", "all")}}, 1, 0},
		"a key":                             {&ratelimitv3.RateLimitRequest{Domain: "tenant", Descriptors: []*descriptorv3.RateLimitDescriptor{describe("key", "a")}}, 0, 1},
		"two":                               {&ratelimitv3.RateLimitRequest{Domain: "all", Descriptors: []*descriptorv3.RateLimitDescriptor{describe(), describe("policy", "tenant", "key", "a")}}, 1, 1},
		"the same twice":                    {&ratelimitv3.RateLimitRequest{Domain: "all", Descriptors: []*descriptorv3.RateLimitDescriptor{describe(), describe()}}, 2, 0},
		"hits_addend of the call":           {&ratelimitv3.RateLimitRequest{Domain: "all", HitsAddend: 7, Descriptors: []*descriptorv3.RateLimitDescriptor{describe()}}, 7, 0},
		"hits_addend of the descriptor":     {&ratelimitv3.RateLimitRequest{Domain: "all", HitsAddend: 7, Descriptors: []*descriptorv3.RateLimitDescriptor{costly}}, 5, 0},
		"a hits_addend of the descriptor 0": {&ratelimitv3.RateLimitRequest{Domain: "all", HitsAddend: 7, Descriptors: []*descriptorv3.RateLimitDescriptor{free}}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tenant := policy("tenant", "", throttle.PerHour(99))
				tenant.Keyed = true
				s := beginNamed(t, nil, policy("all", "", throttle.PerHour(99)), tenant)
				answer, err := s.ask(time.Second, c.request)
				require.NoError(t, err)
				require.Equal(t, ratelimitv3.RateLimitResponse_OK, answer.GetOverallCode())
				require.Len(t, answer.GetStatuses(), len(c.request.GetDescriptors()))
				require.Equal(t, []int{c.all, c.tenant}, []int{s.status("all", "").Used, s.status("tenant", "a").Used})
			})
		})
	}
}

// beginNamed starts a server whose limiters have policies that no request matches.
func beginNamed(t *testing.T, change func(*envoy.Config), policies ...throttle.Policy) *scene {
	s := begin(t, memstore.New(), func(c *envoy.Config) {
		require.NoError(t, c.Limiters.SetPolicies(policies))
		if change != nil {
			change(c)
		}
	}, policy("ext_proc", "/", throttle.PerHour(1)))
	return s
}

// TestWhatCannotBeDemanded fails with all mistakes, is told, and spends nothing.
func TestWhatCannotBeDemanded(t *testing.T) {
	negative, limited := describe(), describe()
	negative.IsNegativeHits = true
	limited.Limit = new(descriptorv3.RateLimitDescriptor_RateLimitOverride)
	many := make([]*descriptorv3.RateLimitDescriptor, 33)
	for i := range many {
		many[i] = describe()
	}

	for name, c := range map[string]struct {
		descriptors []*descriptorv3.RateLimitDescriptor
		says        []string
	}{
		"no descriptor":       {nil, []string{"0 descriptors"}},
		"many descriptors":    {many, []string{"33 descriptors"}},
		"an unknown policy":   {[]*descriptorv3.RateLimitDescriptor{describe("policy", "x")}, []string{"descriptor 1: no policy has this name"}},
		"an unknown entry":    {[]*descriptorv3.RateLimitDescriptor{describe("remote_address", "10.0.0.1")}, []string{`"remote_address" is unknown`}},
		"two policies":        {[]*descriptorv3.RateLimitDescriptor{describe("policy", "p", "policy", "q")}, []string{`"policy" comes twice`}},
		"in flight":           {[]*descriptorv3.RateLimitDescriptor{describe("policy", "slots")}, []string{"use external processing"}},
		"a key too many":      {[]*descriptorv3.RateLimitDescriptor{describe("key", "a")}, []string{"p"}},
		"a key too few":       {[]*descriptorv3.RateLimitDescriptor{describe("policy", "keyed")}, []string{"keyed"}},
		"hits that come back": {[]*descriptorv3.RateLimitDescriptor{negative}, []string{"is_negative_hits"}},
		"a limit":             {[]*descriptorv3.RateLimitDescriptor{limited}, []string{"limit is set"}},
		"two mistakes":        {[]*descriptorv3.RateLimitDescriptor{describe("x", ""), describe(), negative}, []string{"descriptor 1", "descriptor 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keyed := policy("keyed", "", throttle.PerHour(9))
				keyed.Keyed = true
				s := beginNamed(t, nil, policy("p", "", throttle.PerHour(9)), policy("slots", "", throttle.Concurrency(1)), keyed)
				_, err := s.ask(time.Second, &ratelimitv3.RateLimitRequest{Domain: "p", Descriptors: c.descriptors})
				require.Equal(t, codes.InvalidArgument, status.Code(err))
				for _, text := range c.says {
					require.ErrorContains(t, err, text)
				}
				require.Len(t, s.unfit, 1)
				require.Zero(t, s.status("p", "").Used)
			})
		})
	}
}

// TestCallsAreHeld until there is room, or refused at once with a time if the timeout of the filter comes first.
func TestCallsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beginNamed(t, nil, policy("p", "", throttle.PerSecond(1)), policy("q", "", throttle.PerHour(2)))
		one := &ratelimitv3.RateLimitRequest{Domain: "p", Descriptors: []*descriptorv3.RateLimitDescriptor{describe(), describe("policy", "q")}}
		_, err := s.ask(20*time.Millisecond, one)
		require.NoError(t, err)

		began := time.Now()
		refused, err := s.ask(20*time.Millisecond, one)
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		require.Equal(t, ratelimitv3.RateLimitResponse_OVER_LIMIT, refused.GetOverallCode())
		require.Equal(t, ratelimitv3.RateLimitResponse_OVER_LIMIT, refused.GetStatuses()[0].GetCode())
		require.Equal(t, ratelimitv3.RateLimitResponse_OK, refused.GetStatuses()[1].GetCode())
		require.Greater(t, refused.GetStatuses()[0].GetDurationUntilReset().AsDuration(), time.Second)
		require.Equal(t, []string{"retry-after", "2"}, []string{refused.GetResponseHeadersToAdd()[0].GetKey(), refused.GetResponseHeadersToAdd()[0].GetValue()})

		// An answer takes time, too: a start right before the deadline is none.
		late, err := s.ask(refused.GetStatuses()[0].GetDurationUntilReset().AsDuration()+5*time.Millisecond, one)
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		require.Equal(t, ratelimitv3.RateLimitResponse_OVER_LIMIT, late.GetOverallCode())

		_, err = s.ask(5*time.Second, one)
		require.NoError(t, err)
		require.Greater(t, time.Since(began), time.Second)
		require.Equal(t, []int{1, 2}, []int{s.status("p", "").Used, s.status("q", "").Used})

		// What can never fit has no time.
		huge := &ratelimitv3.RateLimitRequest{Domain: "p", HitsAddend: math.MaxUint32, Descriptors: []*descriptorv3.RateLimitDescriptor{describe()}}
		never, err := s.ask(time.Second, huge)
		require.NoError(t, err)
		require.Equal(t, ratelimitv3.RateLimitResponse_OVER_LIMIT, never.GetOverallCode())
		require.Nil(t, never.GetStatuses()[0].GetDurationUntilReset())
		require.Empty(t, never.GetResponseHeadersToAdd())
	})
}

// TestP7_CutCallsOfTheService: calls that are cut give their places back, and a thousand of them wait.
func TestP7_CutCallsOfTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beginNamed(t, func(c *envoy.Config) { c.HeldPerBudget = 1024 }, policy("p", "", throttle.PerSecond(1)))
		one := &ratelimitv3.RateLimitRequest{Domain: "p", Descriptors: []*descriptorv3.RateLimitDescriptor{describe()}}
		_, err := s.ask(time.Second, one)
		require.NoError(t, err)

		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() {
				_, err := s.rls.ShouldRateLimit(ctx, one)
				require.Equal(t, codes.Canceled, status.Code(err))
			})
		}
		synctest.Wait()
		require.Equal(t, 500, s.server.Stats().Held)
		cancel()
		all.Wait()
		synctest.Wait()
		require.Zero(t, s.server.Stats().Held)

		began := time.Now()
		_, err = s.ask(5*time.Second, one)
		require.NoError(t, err)
		require.Less(t, time.Since(began), 2*time.Second)
	})
}

// A leavingStore has its caller leave while it answers.
type leavingStore struct {
	throttle.Store
	leave context.CancelFunc
}

func (s leavingStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	g, err := s.Store.Book(ctx, b)
	s.leave()
	return g, err
}

// TestP7_ALeaverWithAStart: a start that comes when its caller has left is given back.
func TestP7_ALeaverWithAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		s := begin(t, leavingStore{memstore.New(), leave}, nil, policy("p", "/", throttle.PerHour(9)))
		_, err := s.server.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{Domain: "p", Descriptors: []*descriptorv3.RateLimitDescriptor{describe()}})
		require.Equal(t, codes.Canceled, status.Code(err))
		require.Zero(t, s.status("p", "").Used)
	})
}

// TestCallsWithoutAPlace are over the limit, and not let through.
func TestCallsWithoutAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beginNamed(t, func(c *envoy.Config) { c.Held = 1 }, policy("p", "", throttle.PerSecond(1)))
		one := &ratelimitv3.RateLimitRequest{Domain: "p", Descriptors: []*descriptorv3.RateLimitDescriptor{describe()}}
		answers := make(chan *ratelimitv3.RateLimitResponse, 2)
		for range 2 {
			go func() {
				answer, _ := s.ask(time.Minute, one)
				answers <- answer
			}()
			synctest.Wait()
		}
		<-answers
		full, err := s.ask(time.Minute, one)
		require.NoError(t, err)
		require.Equal(t, ratelimitv3.RateLimitResponse_OVER_LIMIT, full.GetOverallCode())
		require.Equal(t, time.Second, full.GetStatuses()[0].GetDurationUntilReset().AsDuration())

		s.server.Stop(0)
		stopped, err := s.ask(time.Minute, one)
		require.NoError(t, err)
		for _, answer := range []*ratelimitv3.RateLimitResponse{stopped, <-answers} {
			require.Equal(t, ratelimitv3.RateLimitResponse_OVER_LIMIT, answer.GetOverallCode())
		}
		require.Equal(t, "map[held:1 limit:0 malformed:0 policy:0 stopping:2 store:0 token:0]", fmt.Sprint(s.server.Stats().Refused))
	})
}

// TestP12_TheServiceWithoutAStore fails, so that failure_mode_deny decides.
func TestP12_TheServiceWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, deadStore{memstore.New()}, nil, policy("p", "/", throttle.PerSecond(1)))
		_, err := s.rls.ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{Domain: "p", Descriptors: []*descriptorv3.RateLimitDescriptor{describe()}})
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.Empty(t, s.unfit)
	})
}

// TestNoService: without limiters the rate limit service is not served.
func TestNoService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, memstore.New(), func(c *envoy.Config) { c.Limiters = nil }, policy("p", "/", throttle.PerSecond(1)))
		_, err := s.ask(time.Second, &ratelimitv3.RateLimitRequest{Domain: "p", Descriptors: []*descriptorv3.RateLimitDescriptor{describe()}})
		require.Equal(t, codes.Unimplemented, status.Code(err))
	})
}
