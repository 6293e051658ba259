import Bytes
import System
import TestSupport
import Testing

@testable import Bench

@Suite(.within(minutes: 10)) struct RlsTests {
    @Test(arguments: RlsPolicy.allCases.filter { !$0.isForAll && !$0.isFallback })
    func `where each row is for one subscriber, all get as many`(policy: RlsPolicy) {
        for isQuick in [true, false] {
            for size in policy.sizes(isQuick: isQuick) {
                let changes = policy.changes(subscribers: size, isQuick: isQuick)
                #expect(changes >= size && changes.isMultiple(of: size))
            }
        }
    }

    @Test(arguments: RlsPolicy.allCases)
    func `at least one change is asked about whole, as the peer does it`(policy: RlsPolicy) {
        for size in policy.sizes(isQuick: false) {
            let changes = policy.peerChanges(subscribers: size, isQuick: false)
            #expect(changes >= 1 && changes * size <= max(size, 40_000))
            #expect(changes <= policy.changes(subscribers: size, isQuick: false) || policy.isFallback)
        }
    }

    @Test func `the targets are the issue's`() {
        #expect(RlsPolicy.owner.target(subscribers: 1000) == 1000)
        #expect(RlsPolicy.membership.target(subscribers: 5000) == 5000)
        #expect(RlsPolicy.fallback.target(subscribers: 1000) == 5)
        #expect(RlsPolicy.none.target(subscribers: 1000) == nil)
    }

    @Test func `a user's number is written alike by the database and by the clients`() {
        let text = ClientText(RlsStage.claims(numbered: "{n:12}")).text(client: 42)
        #expect(text.contains(#""sub":"00000000-0000-4000-8000-000000000042""#))
        let payload = RlsStage.joinPayload(.ownerAndFilter, numbered: "{n:12}", token: "t")
        #expect(ClientText(payload).text(client: 7).contains("owner_id=eq.00000000-0000-4000-8000-000000000007"))
    }

    @Test func `each client has a token of its own`() {
        let signature = ClientSignature(secret: Array("secret".utf8), claims: ClientText(#"{"sub":"{n}"}"#))
        var writer = ByteWriter()
        ClientText("a {token} b").append(client: 3, to: &writer, signature: signature)
        let text = writer.bytes.text
        #expect(text == "a \(signature.token(client: 3)) b")
        #expect(signature.token(client: 3) != signature.token(client: 4))
        #expect(signature.token(client: 3).split(separator: ".").count == 3)
    }

    @Test func `braces that mean nothing stay as they are`() {
        for text in [#"{"n":1}"#, "{n%0}", "{n:}", "{n:99}", "{nobody}", "{", "{}"] {
            #expect(ClientText(text).text(client: 5) == text)
        }
        #expect(ClientText("{n} {n:3} {n%4}").text(client: 5) == "5 005 1")
    }
}
