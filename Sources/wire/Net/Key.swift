/// Number that epoll returns with an event: it stands for a connection, the bell, or a listener.
enum Key {
    private static let special: UInt32 = .max
    static let bell = UInt64(special)

    static func listener(index: Int) -> UInt64 { UInt64(index + 1) << 32 | UInt64(special) }
    static func listener(_ key: UInt64) -> Int { Int(key >> 32) - 1 }
    static func connection(_ id: ConnectionID) -> UInt64 { UInt64(id.generation) << 32 | UInt64(id.seat) }

    static func connection(_ key: UInt64) -> ConnectionID? {
        let seat = UInt32(truncatingIfNeeded: key)
        return seat == special ? nil : ConnectionID(seat: seat, generation: UInt32(truncatingIfNeeded: key >> 32))
    }
}
