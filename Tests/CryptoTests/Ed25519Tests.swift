import Crypto
import TestSupport
import Testing

@Suite(.within(minutes: 1)) struct Ed25519Tests {
    /// Checks the first two examples of RFC 8032 §7.1.
    @Test(arguments: [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
        ),
    ])
    func `makes the public keys of the published seeds`(seed: String, key: String) {
        #expect(Ed25519.publicKey(ofSeed: bytes(hex: seed)) == bytes(hex: key))
    }

    @Test func `a seed has 32 bytes`() {
        #expect(Ed25519.publicKey(ofSeed: []) == nil)
        #expect(Ed25519.publicKey(ofSeed: Array(repeating: 1, count: 33)) == nil)
    }
}
