package wechat

import (
	"iter"
	"maps"
	"slices"
)

// perDay is the limits of a newly registered account, in calls a day.
var perDay = map[string]int{
	"/cgi-bin/token":                  2_000,
	"/cgi-bin/stable_token":           500_000,
	"/cgi-bin/menu/create":            1_000,
	"/cgi-bin/menu/get":               10_000,
	"/cgi-bin/menu/delete":            1_000,
	"/cgi-bin/groups/create":          1_000,
	"/cgi-bin/groups/get":             1_000,
	"/cgi-bin/groups/update":          1_000,
	"/cgi-bin/groups/members/update":  100_000,
	"/cgi-bin/media/upload":           5_000,
	"/cgi-bin/media/get":              10_000,
	"/cgi-bin/media/uploadnews":       10,
	"/cgi-bin/message/custom/send":    500_000,
	"/cgi-bin/message/mass/send":      100,
	"/cgi-bin/message/mass/sendall":   100,
	"/cgi-bin/message/mass/delete":    10,
	"/cgi-bin/message/template/send":  100_000,
	"/cgi-bin/qrcode/create":          100_000,
	"/cgi-bin/user/get":               500,
	"/cgi-bin/user/info":              5_000_000,
	"/cgi-bin/user/info/updateremark": 10_000,
}

// testPerDay is the limits of a test account, in calls a day.
var testPerDay = map[string]int{
	"/cgi-bin/token":                 200,
	"/cgi-bin/stable_token":          500_000, // no page says that it has less
	"/cgi-bin/menu/create":           100,
	"/cgi-bin/menu/get":              1_000,
	"/cgi-bin/menu/delete":           100,
	"/cgi-bin/groups/create":         100,
	"/cgi-bin/groups/get":            100,
	"/cgi-bin/groups/update":         100,
	"/cgi-bin/groups/members/update": 1_000,
	"/cgi-bin/media/upload":          500,
	"/cgi-bin/media/get":             1_000,
	"/cgi-bin/message/custom/send":   50_000,
	"/cgi-bin/qrcode/create":         10_000,
	"/cgi-bin/user/get":              100,
	"/cgi-bin/user/info":             500_000,
}

// perMinute is what an account may call in a minute, where that is published.
var perMinute = map[string]int{
	"/cgi-bin/stable_token": 10_000,
}

// merged returns the numbers of published and of options, by path. A number in options replaces the
// published one, and a 0 in options takes it away.
func merged(published, options map[string]int) map[string]int {
	numbers := maps.Clone(published)
	maps.Copy(numbers, options)
	maps.DeleteFunc(numbers, func(_ string, n int) bool { return n == 0 })
	return numbers
}

// sorted yields the numbers in the order of their paths, so that a table is always
// the same.
func sorted(numbers map[string]int) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for _, path := range slices.Sorted(maps.Keys(numbers)) {
			if !yield(path, numbers[path]) {
				return
			}
		}
	}
}
