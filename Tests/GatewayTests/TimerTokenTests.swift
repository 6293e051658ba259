import Net
import TestSupport
import Testing

@testable import Gateway

@Suite(.within(minutes: 1)) struct TimerTokenTests {
    private static let places = [ChannelPlace(number: 0), ChannelPlace(number: 1), ChannelPlace(number: .max)]
    private static let generations: [UInt32] = [0, 1, TimerToken.cut(.max)]

    private static var all: [TimerToken] {
        var all: [TimerToken] = [.largeInput, .receipts, .farewells]
        for place in places {
            all += [.reread(place), .space(place), .unwind(place), .standings(place), .sentRecord(place)]
            all.append(.refusal(place.number))
            for generation in generations {
                all.append(.request(ConnectionID(seat: place.number, generation: generation)))
                all += [
                    .expiry(channel: place, generation: generation), .join(channel: place, generation: generation),
                    .bind(channel: place, generation: generation), .loss(channel: place, generation: generation),
                    .lack(channel: place, generation: generation), .ready(channel: place, generation: generation),
                ]
            }
        }
        return all
    }

    @Test func `a token is read back as what was packed`() {
        for token in Self.all { #expect(TimerToken(rawValue: token.rawValue) == token) }
        #expect(Set(Self.all.map(\.rawValue)).count == Self.all.count)
    }

    @Test func `a follower's number fits into a timer, also after the last`() {
        #expect(FollowerNumber.next(after: 4) == 5)
        let last = UInt32(1) << ChannelPlace.channelBits - 1
        #expect(FollowerNumber.next(after: last) == 0)
        #expect(ChannelPlace(project: 3, channel: FollowerNumber.next(after: last - 1)).project == 3)
    }

    @Test func `a kind that nobody has is no token`() {
        #expect(TimerToken(rawValue: .max) == nil)
        #expect(TimerToken(rawValue: 63 << 58) == nil)
    }
}
