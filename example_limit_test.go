package throttle_test

import (
	"encoding/json"
	"fmt"

	"github.com/fleetthrottle/throttle"
)

func ExampleParseLimit() {
	for _, text := range []string{
		"10000 per 20 seconds",
		"40/s paced",
		"100/m fixed",
		"5000/month Asia/Shanghai",
		"40/d",
	} {
		limit, err := throttle.ParseLimit(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(limit)
	}
	// Output:
	// 10000/20s
	// 40/s paced
	// 100/m fixed
	// 5000/month Asia/Shanghai
	// throttle: limit "40/d": "d" at offset 3 is not clear (is it "day", by the calendar, or any "24h"?); understood are "40/s", "10000/20s", "40/s paced", "100/m fixed", "100/day", "5000/month Asia/Shanghai", "2/s burst 40", "20 in flight" and "unlimited"
}

// A limit stands in a configuration as its text.
func ExampleLimit_UnmarshalText() {
	var config struct{ Limit throttle.Limit }
	if err := json.Unmarshal([]byte(`{"Limit": "20/s"}`), &config); err != nil {
		fmt.Println(err)
	}
	fmt.Println(config.Limit.N(), "in", config.Limit.Per())
	// Output: 20 in 1s
}
