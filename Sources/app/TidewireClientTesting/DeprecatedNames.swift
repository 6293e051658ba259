import TidewireClient

// Former names of public types and members.

@available(*, deprecated, renamed: "MemoryHub.MessageRefusal")
public typealias MessageRefusal = MemoryHub.MessageRefusal

extension MemoryHub {
    @available(*, deprecated, renamed: "broadcast(_:event:to:)")
    public func broadcast(_ topic: String, _ event: String, _ payload: JSONValue) {
        broadcast(payload, event: event, to: topic)
    }

    @available(*, deprecated, renamed: "broadcast(bytes:event:to:)")
    public func broadcast(_ topic: String, _ event: String, bytes: [UInt8]) {
        broadcast(bytes: bytes, event: event, to: topic)
    }
}
