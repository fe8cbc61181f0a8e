package discord_test

import (
	"fmt"
	"net/http"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/discord"
)

// A message is charged to the bot, to its route and, until it is answered, to what
// may be refused.
func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store:    memstore.New(),
		Policies: discord.Policies(discord.Options{}),
	}))
	req, err := http.NewRequest(http.MethodPost, "https://discord.com/api/v10/channels/41771983423143937/messages", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	req.Header.Set("Authorization", "Bot secret")
	for _, charge := range transport.Explain(req) {
		fmt.Println(charge.Budget.Policy, "=", charge.Limit)
	}
	// Output:
	// discord-global = 50/s
	// discord-route = 50/s
	// discord-refused = 10000/10m
}
