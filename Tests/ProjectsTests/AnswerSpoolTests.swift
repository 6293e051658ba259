import Diagnostics
import System
import TestSupport
import Testing
import WebSocket

@testable import Projects

@Suite(.within(minutes: 1)) struct AnswerSpoolTests {
    private static func spool() throws -> AnswerSpool {
        let place = TemporaryDirectory.make("answers")
        try Directories.make(place + "/log")
        return try AnswerSpool(besideLog: place + "/log")
    }

    private static func part(_ name: String, from start: Int = 0) throws -> AnswerPart {
        try AnswerPart([HTTPQueryItem("name", name), HTTPQueryItem("from", "\(start)")])
    }

    private static func write(_ bytes: [UInt8], _ name: String, _ spool: AnswerSpool) throws {
        let file = try spool.directory.open(name, for: .creating)
        try file.write(unsafe bytes.span.bytes, at: 0)
    }

    @Test func `an answer's parts are all of it, and then it is gone`() throws {
        let spool = try Self.spool()
        let whole = (0..<(2 * Limits.maximumQuestionBytes + 7)).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) }
        let name = AnswerSpool.name(at: 1_000)
        try Self.write(whole, name, spool)
        var found: [UInt8] = []
        while found.count < whole.count {
            let answer = try spool.part(Self.part(name, from: found.count))
            guard answer.status == .ok, !answer.body.isEmpty else { break }
            #expect(answer.body.count <= Limits.maximumQuestionBytes)
            found += answer.body
        }
        #expect(found == whole)
        #expect(try spool.part(Self.part(name)).status == .notFound)
        #expect(try !spool.directory.names().contains(name))
    }

    @Test func `what is behind the end is no part`() throws {
        let spool = try Self.spool()
        let name = AnswerSpool.name(at: 1_000)
        try Self.write([1, 2, 3], name, spool)
        #expect(try spool.part(Self.part(name, from: 3)).status == .badRequest)
        #expect(try spool.part(Self.part(name, from: 1)).body == [2, 3])
    }

    @Test(arguments: ["", "log", "../question-1", "question-1/../log", "question-1.bundle", "Question-1", "answer-1"])
    func `only names of answers are asked for`(name: String) {
        #expect(throws: LogQuestion.Refusal.self) { try Self.part(name) }
    }

    @Test func `what nobody fetches goes, and what a process left that was ended`() throws {
        let spool = try Self.spool()
        let now: Int64 = 1_900_000_000
        let lifetime = Int64(Limits.answerLifetime.wholeSeconds)
        let (old, new) = (AnswerSpool.name(at: now - lifetime), AnswerSpool.name(at: now - lifetime + 1))
        for name in [old, new, "question-0badc0de-0000.bundle.partial", "keep"] { try Self.write([1], name, spool) }
        try Directories.make("\(spool.directory.path)/\(old).making/deeper")
        #expect(spool.sweep(at: now))
        #expect(try spool.directory.names().sorted() == ["keep", "log", new])
        #expect(!spool.sweep(at: now + 1))
        #expect(try spool.directory.names().sorted() == ["keep", "log"])
    }

    @Test func `no more are kept than there may be`() throws {
        let spool = try Self.spool()
        for number in 0..<Limits.maximumKeptAnswers {
            #expect(try spool.obstacle() == nil, "\(number)")
            try Self.write([1], AnswerSpool.name(at: 1_000), spool)
        }
        #expect(try spool.obstacle()?.contains("other large answers") == true)
    }
}
