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
        join(#"{"config":{"tidewire":{"replay":\#(json)}}}"#).resumption
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

    @Test func `an offset is resumed from, in an epoch or in the one there is`() {
        guard case .from(let request) = resumption(#"{"epoch":3,"offset":18446744073709,"limit":7}"#),
            case .from(let short) = resumption(#"{"offset":0}"#)
        else {
            Issue.record("no resumption")
            return
        }
        #expect(request.epoch == 3 && request.offset == 18_446_744_073_709 && request.count(maximum: 100) == 7)
        guard case .from(let quoted) = resumption(#"{"epoch":"18446744073709551615","offset":0}"#) else {
            Issue.record("no resumption")
            return
        }
        #expect(quoted.epoch == .max)
        guard case .from(let bare) = resumption(#"{"epoch":9223372036854775808,"offset":0}"#) else {
            Issue.record("an epoch of 64 bits is one")
            return
        }
        #expect(bare.epoch == 1 << 63)
        #expect(short.epoch == nil && short.offset == 0 && short.count(maximum: 100) == 100)
        #expect(join(#"{"config":{}}"#).resumption == .none && resumption("null") == .none)
    }

    @Test(arguments: [
        "1", "[]", "{}", #"{"offset":-1}"#, #"{"offset":"1"}"#, #"{"offset":1,"epoch":-1}"#,
        #"{"offset":1,"epoch":null}"#, #"{"offset":1,"epoch":"x"}"#, #"{"offset":1,"epoch":"-1"}"#,
        #"{"offset":1,"limit":"x"}"#, #"{"offset":1.0}"#,
    ])
    func `an offset that cannot be meant is refused`(json: String) { #expect(resumption(json) == .invalid) }

    @Test func `what is ours is asked for by its name`() {
        let request = join(#"{"config":{"tidewire":{"limits":"True","moves":true,"position":true,"other":{}}}}"#)
        #expect(ExtensionOptions.Name.allCases.allSatisfy { request.options[$0] == true } && request.problems.isEmpty)
        #expect(request.advice.count == 1 && request.advice[0].text.hasPrefix("Unknown option tidewire.other: "))
        #expect(join(#"{"config":{"tidewire":{}}}"#).options == ExtensionOptions())
    }
}
