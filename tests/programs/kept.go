// kept: 40 MB of Go's own heap, in a program without cgo, so that there is no malloc at all.
package main

import (
	"fmt"
	"os"
)

var kept [][]byte

func main() {
	for number := 0; number < 2000; number++ {
		piece := make([]byte, 20000)
		for at := range piece {
			piece[at] = 1
		}
		kept = append(kept, piece)
	}
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
}
