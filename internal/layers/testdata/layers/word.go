package layers

type word string
