package riot_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/riot"
)

const (
	euw     = "https://euw1.api.riotgames.com"
	matches = "https://europe.api.riotgames.com/lol/match/v5/matches/by-puuid/"
	league  = euw + "/lol/league/v4/entries/RANKED_SOLO_5x5/GOLD/I"
)

func TestRows(t *testing.T) {
	r := presettest.Request(t, league)
	require.Equal(t, "riot-app-1s, riot-app-120s, riot-method, riot-service", presettest.Rows(t, riot.Policies(riot.Options{}), r))
	require.Equal(t, "riot-app-10s, riot-app-600s, riot-method, riot-service", presettest.Rows(t, riot.Policies(riot.Options{Limits: riot.Production()}), r))
	require.Empty(t, presettest.Rows(t, riot.Policies(riot.Options{}), presettest.Request(t, "https://ddragon.leagueoflegends.com/")))
}

func TestSharedBudgets(t *testing.T) {
	for _, c := range []struct {
		policy, a, b string
		same         bool
	}{
		{"riot-app-1s", league, euw + "/lol/status/v4/platform-data", true},
		{"riot-app-1s", league, "https://na1.api.riotgames.com/lol/status/v4/platform-data", false},
		{"riot-app-1s", league + "?api_key=RGAPI-1", league + "?api_key=RGAPI-2", false},
		{"riot-method", league, euw + "/lol/league/v4/entries/RANKED_FLEX_SR/IRON/II", true},
		{"riot-method", matches + "aB3-x_Y/ids", matches + "abc/ids", true},
		{"riot-method", matches + "aB3-x_Y/ids", matches + "aB3-x_Y", false},
		{"riot-method", "https://europe.api.riotgames.com/lol/match/v5/matches/EUW1_1", "https://europe.api.riotgames.com/lol/match/v4/matches/EUW1_1", false},
		{"riot-method", league, "https://na1.api.riotgames.com/lol/league/v4/entries/RANKED_SOLO_5x5/GOLD/I", false},
		{"riot-method", league + "?api_key=RGAPI-1", league + "?api_key=RGAPI-2", false},
		{"riot-service", league + "?api_key=RGAPI-1", euw + "/lol/league/v4/masterleagues/by-queue/X?api_key=RGAPI-2", true},
		{"riot-service", league, euw + "/lol/status/v4/platform-data", false},
		{"riot-service", euw, euw + "/", true},
		{"riot-service", league, "https://na1.api.riotgames.com/lol/league/v4/entries/RANKED_SOLO_5x5/GOLD/I", false},
		{"riot-method", league, "POST " + league, false},
	} {
		a, b := presettest.Request(t, c.a), presettest.Request(t, c.b)
		require.Equal(t, c.same, presettest.Shared(t, riot.Policies(riot.Options{}), c.policy, a, b), "%+v", c)
	}
}

func TestTokenComesFirst(t *testing.T) {
	budget := func(token, query string) string {
		r := presettest.Request(t, league+"?api_key="+query)
		r.Header.Set("X-Riot-Token", token)
		return presettest.Budget(t, riot.Policies(riot.Options{}), "riot-method", r)
	}
	require.Equal(t, budget("RGAPI-1", "a"), budget("RGAPI-1", "b"))
	require.NotEqual(t, budget("RGAPI-1", "a"), budget("RGAPI-2", "a"))
	require.Equal(t, budget("", "RGAPI-1"), budget("RGAPI-1", ""))
}

func TestOwnOptions(t *testing.T) {
	one := func(*http.Request) string { return "" }
	policies := riot.Policies(riot.Options{
		Limits: []throttle.Limit{throttle.PerMinute(3000)}, Key: "one", Method: one,
	})
	require.Equal(t, "riot-app-60s", policies[0].Name)
	a, b := presettest.Request(t, league+"?api_key=a"), presettest.Request(t, euw+"/lol/status/v4/platform-data?api_key=b")
	require.True(t, presettest.Shared(t, policies, "riot-method", a, b))
}

func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: riot.Policies(riot.Options{Limits: riot.Production()})}))
	r := httptest.NewRequest(http.MethodGet, "https://euw1.api.riotgames.com/lol/status/v4/platform-data", nil)
	for _, c := range transport.Explain(r) {
		fmt.Println(c.Budget.Policy, c.Limit)
	}
	// Output:
	// riot-app-10s 500/10s
	// riot-app-600s 30000/10m
	// riot-method 1000000000/10m
	// riot-service unlimited
}
