import Bytes
import Protocol
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct ReplayTests {
    private func join(_ payload: String) -> JoinRequest {
        let topic = Array("room".utf8)
        return JoinRequest(Array(payload.utf8).span.bytes, subTopic: topic.span.bytes, maximumBindings: 10)
    }

    private func replay(_ json: String) -> ReplayDemand {
        join(#"{"config":{"broadcast":{"replay":\#(json)}}}"#).replay
    }

    private func resumption(_ json: String) -> ResumeDemand {
        join(#"{"config":{"tidewire":{"resume":\#(json)}}}"#).resumption
    }

    private func count(_ json: String, maximum: Int = 25) -> Int? {
        guard case .since(let request) = replay(json) else { return nil }
        return request.count(maximum: maximum)
    }

    @Test func `since is milliseconds, and the limit is clamped`() {
        guard case .since(let request) = replay(#"{"since":1767225600000,"x":[]}"#) else {
            Issue.record("no replay")
            return
        }
        #expect(request.since == 1_767_225_600_000 && request.limit == nil)
        #expect(count(#"{"since":0}"#) == 25 && count(#"{"since":0,"limit":10}"#) == 10)
        #expect(count(#"{"since":0,"limit":0}"#) == 1 && count(#"{"since":0,"limit":-5}"#) == 1)
        #expect(count(#"{"since":0,"limit":9223372036854775807}"#) == 25)
        #expect(count(#"{"since":0,"limit":500}"#, maximum: 1000) == 500)
    }

    @Test(arguments: [
        "{}", #"{"limit":1}"#, #"{"since":"1"}"#, #"{"since":1.5}"#, #"{"since":null}"#, #"{"since":1,"limit":"2"}"#,
        #"{"since":1,"limit":null}"#, #"{"since":1e3}"#, #"{"since":253402300800000}"#,
        #"{"since":99999999999999999999}"#,
    ])
    func `a replay that cannot be meant is refused`(json: String) { #expect(replay(json) == .invalid) }

    @Test func `the key is there also when it is no object`() {
        for json in ["null", "1", "[]", "true", #""x""#] { #expect(replay(json) == .ignored && replay(json).isThere) }
        #expect(replay("{}").isThere && !join(#"{"config":{"broadcast":{}}}"#).replay.isThere)
    }

    @Test func `a position is what a client was told, as text`() {
        #expect(
            resumption(#""ffffffffffffffff.18446744073709551615""#)
                == .from("ffffffffffffffff.18446744073709551615"))
        // Only code that knows the log can decide if the text is a position.
        #expect(resumption(#""soon""#) == .from("soon") && resumption(#""""#) == .from(""))
        #expect(join(#"{"config":{}}"#).resumption == .none && resumption("null") == .none)
    }

    @Test(arguments: [
        "1", "1.5", "true", "[]", #"{"epoch":"3","offset":1}"#, #""0ffffffffffffffff.18446744073709551615""#,
    ])
    func `what is no such text is refused`(json: String) { #expect(resumption(json) == .invalid) }

    @Test func `it may stand where clients let it through`() {
        #expect(join(#"{"config":{"broadcast":{"tidewire":{"resume":"3.4"}}}}"#).resumption == .from("3.4"))
    }

    @Test func `what is ours is asked for by its name`() {
        let request = join(
            #"{"config":{"tidewire":{"limits":"True","moves":true,"position":true,"snapshot":true,"other":{}}}}"#)
        #expect(ExtensionOptions.Name.allCases.allSatisfy { request.options[$0] == true } && request.problems.isEmpty)
        #expect(request.advice.count == 1 && request.advice[0].text.hasPrefix("Unknown option tidewire.other: "))
        #expect(join(#"{"config":{"tidewire":{}}}"#).options == ExtensionOptions())
    }
}
