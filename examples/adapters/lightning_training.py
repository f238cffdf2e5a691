"""Lightning: a decoder under any encoding, trained by its Trainer; needs `pip install lightning`."""

import lightning
from torch import arange, nn, optim, utils

import posenc
from posenc.layers import SelfAttention


class Decoder(lightning.LightningModule):
    def __init__(self, encodings="rope+fire", dim=32, heads=4):
        super().__init__()
        built = posenc.parse_encodings(encodings, dim=dim, num_heads=heads, head_dim=dim // heads)
        self.decoder = nn.Sequential(
            nn.Embedding(16, dim), SelfAttention(dim, heads, encodings=built), nn.Linear(dim, 16)
        )

    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self.decoder(batch[:, :-1]).mT, batch[:, 1:])

    def configure_optimizers(self):
        return optim.AdamW(self.parameters(), lr=1e-2)


lightning.seed_everything(0)
model = Decoder()
texts = arange(64)[:, None].add(arange(17)).remainder(16)  # each token is the one before, plus one
trainer = lightning.Trainer(max_epochs=20, accelerator="cpu", logger=False, enable_checkpointing=False)
trainer.fit(model, utils.data.DataLoader(texts, batch_size=8))
print("loss", float(model.training_step(texts, 0).detach()))
