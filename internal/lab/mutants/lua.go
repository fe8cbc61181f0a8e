package main

import (
	"regexp"
	"slices"
)

// A luaToken is a word of a script, without blanks and comments.
type luaToken struct {
	text     string
	from, to int
}

var luaWord = regexp.MustCompile(`(?s)(\s+|--\[\[.*?\]\]|--[^\n]*)|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\[\[.*?\]\]|` +
	`[A-Za-z_]\w*|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\.\.\.?|[=~<>]=|.`)

// luaTokens returns all words of a text but comments.
func luaTokens(text string) (all []luaToken) {
	for _, at := range luaWord.FindAllStringSubmatchIndex(text, -1) {
		if at[2] < 0 {
			all = append(all, luaToken{text[at[0]:at[1]], at[0], at[1]})
		}
	}
	return all
}

// A luaFunction is a function that has a name, from its first token to behind its last.
type luaFunction struct {
	name     string
	from, to int
}

// luaFunctions returns all functions that have a name.
func luaFunctions(tokens []luaToken) (all []luaFunction) {
	var open []luaFunction // blocks; a block that is no function, or has no name, is nameless
	for i, t := range tokens {
		switch t.text {
		case "function":
			// The name stands behind the word function, or before it with an equals sign.
			f := luaFunction{from: i}
			for j := i + 1; tokens[j].text != "("; j++ {
				f.name += tokens[j].text
			}

			if f.name == "" && i > 1 && tokens[i-1].text == "=" {
				f.name = tokens[i-2].text
			}

			open = append(open, f)

		case "do", "if", "repeat":
			open = append(open, luaFunction{})
		case "end", "until":
			if len(open) == 0 {
				return all // an end too many: tests of the scripts report it
			}

			f := open[len(open)-1]
			open = open[:len(open)-1]
			f.to = i + 1
			if f.name != "" {
				all = append(all, f)
			}
		}
	}

	return all
}

// A span is a part of a text.
type span struct{ from, to int }

// luaFind returns where some words stand in the functions of that name. Without a name it returns where they stand outside
// of all functions that have one.
func luaFind(text, function, words string) (found []span) {
	tokens, wanted := luaTokens(text), luaTokens(words)
	functions := luaFunctions(tokens)
	searched := func(i int) bool {
		within := slices.ContainsFunc(functions, func(f luaFunction) bool {
			return (function == "" || f.name == function) && f.from <= i && i < f.to
		})
		return within == (function != "")
	}

	for i := 0; len(wanted) > 0 && i+len(wanted) <= len(tokens); i++ {
		run := tokens[i : i+len(wanted)]
		if searched(i) && slices.EqualFunc(run, wanted, func(a, b luaToken) bool { return a.text == b.text }) {
			found = append(found, span{run[0].from, run[len(run)-1].to})
		}
	}

	return found
}

// luaDeclares returns how many functions of that name a script has.
func luaDeclares(text, function string) (n int) {
	name := regexp.QuoteMeta(function)
	if !regexp.MustCompile(`\bfunction\s+` + name + `\b|\b` + name + `\s*=\s*function\b`).MatchString(text) {
		return 0 // splitting every script into tokens would take long
	}
	for _, f := range luaFunctions(luaTokens(text)) {
		if f.name == function {
			n++
		}
	}
	return n
}
