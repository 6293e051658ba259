import TestSupport
import Testing

@testable import Gateway
@testable import Projects

@Suite(.within(minutes: 5)) struct QuestionTurnsTests {
    private typealias Turns = QuestionDesk.Turns<String>

    @Test func `operators take turns, and one cannot fill the queue`() {
        var turns = Turns()
        func add(_ question: String) -> Bool {
            turns.add(question, of: String(question.prefix(1)), most: 6, mostOfOne: 4)
        }
        func next() -> String? { turns.next() }
        #expect((0..<5).map { add("a\($0)") } == [true, true, true, true, false])
        #expect(["b0", "c0", "d0"].map { add($0) } == [true, true, false])
        #expect((0..<4).map { _ in next() } == ["a0", "b0", "c0", "a1"])
        // A question at work counts until it is finished.
        #expect(add("d0") == false)
        turns.finish("a")
        #expect(add("d0") == true)
        #expect((0..<4).map { _ in next() } == ["a2", "d0", "a3", nil])
        for asker in ["a", "a", "a", "b", "c", "d"] { turns.finish(asker) }
        #expect(turns.count == 0 && turns.isEmpty)
    }

    @Test(arguments: seeds(20)) func `each question is answered once, none waits for more than a round`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        var turns = Turns()
        var (added, taken): ([String], [String]) = ([], [])
        var waiting: [String: Int] = [:]
        for step in 0..<500 {
            if Bool.random(using: &random) {
                let asker = "\(Int.random(in: 0..<5, using: &random))"
                let question = "\(asker) \(step)"
                if turns.add(question, of: asker, most: 40, mostOfOne: 20) {
                    added.append(question)
                    if waiting[asker] == nil { waiting[asker] = 0 }
                }
            } else if let question = turns.next() {
                taken.append(question)
                let asker = String(question.prefix { $0 != " " })
                for other in waiting.keys where other != asker { waiting[other, default: 0] += 1 }
                let isLeft = added.contains { $0.hasPrefix(asker + " ") && !taken.contains($0) }
                waiting[asker] = isLeft ? 0 : nil
                #expect(waiting.values.allSatisfy { $0 < 5 }, "\(waiting)")
                turns.finish(asker)
            }
        }
        while let question = turns.next() { taken.append(question) }
        #expect(added.sorted() == taken.sorted())
    }

    @Test func `lines come whole`() {
        var lines = LineBuffer(longest: 8)
        func take(_ text: String) -> String? {
            lines.take(Array(text.utf8)).map { String(decoding: $0, as: UTF8.self) }
        }
        #expect(["ab", "c\nd\ne", "", "\n", "123456789"].map { take($0) } == ["", "abc\nd\n", "", "e\n", nil])
    }

    @Test func `a kick names one target, and nothing that it does not understand`() throws {
        let kick = try OperatorKick(Array(#"{"user":"7","seconds":60,"because":"x"}"#.utf8))
        #expect(kick.target == .user("7") && kick.seconds == 60 && kick.audited == "user 7, blocked for 60 s")
        #expect(try OperatorKick(Array(#"{"session":"00ff/3"}"#.utf8)).target == .socket(255))
        for body in [
            "", "[]", "{}", #"{"user":""}"#, #"{"user":7}"#, #"{"user":"a","login":"b"}"#,
            #"{"user":"a","seconds":-1}"#,
            #"{"user":"a","seconds":31622401}"#, #"{"user":"a","for":"1h"}"#, #"{"session":"xyz"}"#,
            #"{"user":"a","because":1}"#,
        ] {
            #expect(throws: OperatorKick.Refusal.self, "\(body)") { try OperatorKick(Array(body.utf8)) }
        }
    }
}
