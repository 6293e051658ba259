import Foundation
import System
import TestSupport
import Testing

/// Tests of `tidewire bench` that run the built programs.
@Suite(.within(minutes: 30)) struct BenchProgramTests {
    private func output(_ words: [String]) throws -> (ending: ChildProcess.Ending?, text: String) {
        let output = TemporaryDirectory.make("bench") + "/output"
        let ending = try ChildProcess(words, output: output).wait(milliseconds: 60_000)
        return (ending, try String(contentsOfFile: output, encoding: .utf8))
    }

    @Test(arguments: [["bench", "log", "--help"], ["help", "bench", "log"]])
    func `is done by the program beside it`(words: [String]) throws {
        let manual = try output([ServedHub.program] + words)
        #expect(manual.ending == .exited(0))
        #expect(manual.text.hasPrefix("NAME\n    tidewire bench log - "))
    }

    @Test func `complains as it always did`() throws {
        let complaint = try output([ServedHub.program, "bench", "lg"])
        #expect(complaint.ending == .exited(2))
        #expect(
            complaint.text.hasPrefix("tidewire: there is no command \"lg\"; did you mean `tidewire bench log`?"),
            "\(complaint.text)")
    }

    @Test func `says what to build where that program is missing`() throws {
        let alone = TemporaryDirectory.make("alone") + "/tidewire"
        // A separate process makes the copy. Otherwise, a child that this process starts at the same time could hold
        // the file open for writing, and then the file could not run.
        #expect(try ChildProcess(["/bin/cp", ServedHub.program, alone]).wait() == .exited(0))
        let complaint = try output([alone, "bench", "log"])
        #expect(complaint.ending == .exited(1))
        #expect(complaint.text.contains("cannot start \(alone)-bench"), "\(complaint.text)")
        #expect(complaint.text.contains("swift build -c release --product tidewire-bench"))
    }
}
