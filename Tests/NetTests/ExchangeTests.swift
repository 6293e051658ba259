import Net
import Testing

@Suite struct ExchangeTests {
    @Test func `sends back what it receives`() throws {
        let stage = try Stage()
        let client = try stage.connect()
        try client.send("hello")
        #expect(try client.receiveText(5) == "hello")
        client.close()
        #expect(stage.diary.waitForEnd() == .byPeer)
    }
}
