package fake_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/examples/dingtalk/fake"
)

func TestSlidingSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, token := start(t, fake.Options{})
		require.Equal(t, 5, served(t, s, listSub+token, 5))
		time.Sleep(600 * time.Millisecond)
		require.Equal(t, 15, served(t, s, listSub+token, 40), "refused calls take up no room")
		require.Equal(t, 20, served(t, s, "/topapi/attendance/getcolumnval"+token, 30), "another API has its own second")
		time.Sleep(400*time.Millisecond - 1)
		require.Equal(t, 0, served(t, s, listSub+token, 1))
		time.Sleep(time.Nanosecond)
		require.Equal(t, 5, served(t, s, listSub+token, 40))
	})
}

func TestFixedSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, token := start(t, fake.Options{FixedSecond: true})
		time.Sleep(900 * time.Millisecond)
		require.Equal(t, 20, served(t, s, listSub+token, 30))
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, 20, served(t, s, listSub+token, 30))
	})
}

func TestRefusedCallsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, token := start(t, fake.Options{CountRefused: true})
		require.Equal(t, 20, served(t, s, listSub+token, 30))
		for range 5 {
			time.Sleep(500 * time.Millisecond)
			require.Equal(t, 0, served(t, s, listSub+token, 20))
		}
		time.Sleep(time.Second)
		require.Equal(t, 20, served(t, s, listSub+token, 30))
	})
}

func TestQueueHoldsInsteadOfRefusing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, token := start(t, fake.Options{PerSecond: 2, Queue: true})
		begin := time.Now()
		held := make(chan time.Duration, 6)
		for range 6 {
			go func() {
				ask(s, "POST", listSub+token, "")
				held <- time.Since(begin)
			}()
		}
		for i := range 6 {
			require.Equal(t, time.Duration(i/2)*time.Second, <-held)
		}
	})
}

func TestAppsAndLargerEditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.New(fake.Options{Apps: map[string]string{"a": "1", "b": "2"}, PerSecond: 40})
		a, b := login(t, s, "a", "1"), login(t, s, "b", "2")
		require.Equal(t, 40, served(t, s, listSub+a, 50))
		require.Equal(t, 40, served(t, s, listSub+b, 50), "each app has its own second")
	})
}

func TestCrowdedAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, token := start(t, fake.Options{PerAPI: 15})
		time.Sleep(300 * time.Millisecond)
		require.Equal(t, 15, served(t, s, listSub+token, 16))
		time.Sleep(700 * time.Millisecond)
		require.Equal(t, 5, served(t, s, listSub+token, 15), "the clock second is new, the app's is not over")
	})
}

func TestAddressIsBanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, token := start(t, fake.Options{}) // the login is the first of the 10,000
		require.Equal(t, 20, served(t, s, listSub+token, 9_998))
		require.Equal(t, "90018", code(t, ask(s, "POST", listSub+token, "")))
		require.Zero(t, s.Bans())
		require.Equal(t, "deny", code(t, ask(s, "POST", listSub+token, "")))
		require.Equal(t, 1, s.Bans())
		time.Sleep(5*time.Minute - 1)
		for _, path := range []string{"/gettoken", "/robot/send", "/nowhere", "/v1.0/contact/users/x"} {
			require.Equal(t, "deny", code(t, ask(s, "GET", path, "")))
		}
		time.Sleep(time.Nanosecond)
		require.Equal(t, 20, served(t, s, listSub+token, 30))
		require.Equal(t, 1, s.Bans())
	})
}

func TestAddressWindowSlides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.New(fake.Options{Address: 100, AddressWindow: 200 * time.Millisecond, BanFor: 3 * time.Second})
		for range 300 { // at 2 ms each, exactly 100 lie in any 200 ms
			ask(s, "GET", "/nowhere", "")
			time.Sleep(2 * time.Millisecond)
		}
		require.Zero(t, s.Bans())
		ask(s, "GET", "/nowhere", "")
		require.Zero(t, s.Bans())
		ask(s, "GET", "/nowhere", "")
		require.Equal(t, 1, s.Bans())
	})
}

func TestCallsMayProlongTheBan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, token := start(t, fake.Options{Address: 10, BanFor: time.Minute, BanProlongs: true})
		served(t, s, listSub+token, 10)
		require.Equal(t, 1, s.Bans())
		time.Sleep(50 * time.Second)
		require.Equal(t, "deny", code(t, ask(s, "POST", listSub+token, "")))
		time.Sleep(50 * time.Second)
		require.Equal(t, "deny", code(t, ask(s, "POST", listSub+token, "")))
		time.Sleep(time.Minute)
		require.Equal(t, "0", code(t, ask(s, "POST", listSub+token, "")))
	})
}

func TestRobotClosesForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.New(fake.Options{})
		robot := "/robot/send?access_token=" + fake.DefaultRobot
		require.Equal(t, 20, served(t, s, robot, 21))
		time.Sleep(5 * time.Minute)
		require.Equal(t, 0, served(t, s, robot, 30), "and these do not prolong it")
		time.Sleep(5*time.Minute - 1)
		require.Equal(t, "660026", code(t, ask(s, "POST", robot, "")))
		time.Sleep(time.Nanosecond)
		require.Equal(t, 19, served(t, s, robot, 19))
	})
}

func TestMonthlyQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, token := start(t, fake.Options{PerMonth: 3}) // the bubble's clock begins on the 1st of January 2000, UTC
		metered := "/topapi/attendance/getcolumnval" + token
		require.Equal(t, 3, served(t, s, metered, 5))
		require.Equal(t, 1, served(t, s, listSub+token, 1), "unmetered APIs go on")
		time.Sleep(31*24*time.Hour - 8*time.Hour - 1)
		login(t, s, fake.DefaultAppKey, fake.DefaultAppSecret)
		require.Equal(t, 0, served(t, s, metered, 1))
		time.Sleep(time.Nanosecond)
		require.Equal(t, 3, served(t, s, metered, 5), "February begins at midnight in Beijing")
	})
}

func TestLogHoldsEveryArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, token := start(t, fake.Options{PerSecond: 2})
		begin := time.Now()
		served(t, s, listSub+token, 3)
		log := s.Log()
		require.Len(t, log, 4)
		require.Equal(t, "/gettoken", log[0].API)
		for i, want := range []string{"", "", "90018"} {
			require.Equal(t, fake.Arrival{
				At: begin, API: listSub, App: fake.DefaultAppKey, Address: "192.0.2.1", Refusal: want,
			}, log[i+1], strconv.Itoa(i))
		}
	})
}

func TestAddressByTheClock(t *testing.T) {
	bans := func(t *testing.T, o fake.Options) int {
		o.Address = 2
		s := fake.New(o)
		time.Sleep(19 * time.Second)
		for range 2 {
			ask(s, "GET", "/gettoken", "")
			ask(s, "GET", "/gettoken", "")
			time.Sleep(2 * time.Second)
		}
		return s.Bans()
	}
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, 0, bans(t, fake.Options{FixedAddress: true}))
	})
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, 1, bans(t, fake.Options{}))
	})
}
