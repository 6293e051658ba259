import System
import TestSupport
import Testing

@Suite(.within(minutes: 1)) struct PipeTests {
    /// Checks that no signal is raised, because a signal would end the tests.
    @Test func `to write to a reader that is gone is an answer and not a signal`() throws {
        let pipe = try Pipe()
        #expect(ByteStream.write([1, 2, 3], to: pipe.writing))
        #expect(ByteStream.read(pipe.reading) == [1, 2, 3])
        ByteStream.close(pipe.reading)
        for _ in 0..<3 { #expect(!ByteStream.write([4], to: pipe.writing)) }
        ByteStream.close(pipe.writing)
    }
}
