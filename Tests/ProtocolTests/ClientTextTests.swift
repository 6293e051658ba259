import Bytes
import TestSupport
import Testing

@testable import Protocol

@Suite(.within(minutes: 5)) struct ClientTextTests {
    @Test(arguments: [
        ("Unauthorized: no", "Unauthorized"), ("JwtSignerError: Failed: x", "JwtSignerError"),
        ("unmatched topic", "UnmatchedTopic"),
        ("payload_size_exceeded", "PayloadSizeExceeded"),
        ("Presence track payload must be a map", "PresenceTrackPayloadMustBeAMap"),
        ("Unknown Error on Channel", "UnknownErrorOnChannel"), ("", ""), (": x", "X"), ("a\"b", "AB"),
    ])
    func `a reason's code is what it begins with, or all of it`(reason: String, code: String) {
        var writer = ByteWriter(capacity: 64)
        let bytes = Array(reason.utf8)
        ClientText.appendCode(ofReason: bytes.span.bytes, to: &writer)
        #expect(writer.bytes.text == code)
    }

    @Test func `codes are words`() {
        for code in TextCode.allCases { #expect(code.rawValue.allSatisfy { $0.isASCII && $0.isLetter }) }
    }
}
